"""gdb commands for libtws: `source scripts/gdb/tws.py`, then

    tws-threads         list the light threads of the process: label, carrier, where it waits
    tws-threads bt      the same with the backtrace of each
    tws-threads bt 17   only that of the thread whose label (connection id) is 17

A light thread is a saved stack pointer: its backtrace is made by putting its saved registers into
the selected pthread's for a moment. Needs a live process on x86-64 and the library's debug info.
"""
import gdb

REGISTERS = ("r15", "r14", "r13", "r12", "rbx", "rbp", "rip")


def runtime():
    """The light runtime, found through any of its drivers."""
    selected = gdb.selected_thread()
    try:
        for thread in gdb.selected_inferior().threads():
            thread.switch()
            try:
                driver = gdb.parse_and_eval("'driver.c'::driver_here")
            except gdb.error:
                continue
            if int(driver):
                return driver["rt"]
    finally:
        if selected:
            selected.switch()
    raise gdb.GdbError("no light threads in this process")


def tasks(rt):
    """Every light thread: they lie at the top of the stacks in use."""
    task_type = gdb.lookup_type("struct light_task")
    size = (task_type.sizeof + 63) & ~63
    stacks = rt["stacks"]
    slot_size = int(stacks["slot_size"])
    slab = stacks["slabs"]
    while int(slab):
        for i in range(*slab["slots"].type.range()):
            if slab["slots"][i]["used"]:
                top = int(slab["base"]) + (i + 1) * slot_size
                yield gdb.Value(top - size).cast(task_type.pointer()).dereference()
        slab = slab["next"]


class SavedRegisters:
    """The registers of a waiting light thread, for as long as the block runs."""

    def __init__(self, sp):
        word = gdb.lookup_type("unsigned long").pointer()
        frame = gdb.Value(int(sp) + 8).cast(word)
        self.values = {name: int(frame[i]) for i, name in enumerate(REGISTERS)}
        self.values["rsp"] = int(sp) + 8 + 8 * len(REGISTERS)

    def __enter__(self):
        gdb.newest_frame().select()
        self.own = {name: int(gdb.parse_and_eval("$" + name)) & (1 << 64) - 1
                    for name in self.values}
        self.put(self.values)

    def put(self, values):
        for name, value in values.items():
            gdb.execute(f"set ${name} = {value}", to_string=True)

    def __exit__(self, *_):
        gdb.newest_frame().select()
        self.put(self.own)


class Threads(gdb.Command):
    """List the light threads of a libtws process: tws-threads [bt [LABEL]]"""

    def __init__(self):
        super().__init__("tws-threads", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        words = gdb.string_to_argv(argument)
        count = 0
        for task in tasks(runtime()):
            label = int(task["label"])
            if len(words) > 1 and label != int(words[1]):
                continue
            count += 1
            self.show(task, label, "bt" in words)
        print(f"{count} light threads")

    def show(self, task, label, backtrace):
        running = bool(task["running"])
        stack = task["stack"]
        used = int(stack["low"]) + int(stack["size"]) - int(task["context"]["sp"])
        where = "runs" if running else f"waits, {used} bytes of stack in use"
        print(f"light thread {label} on carrier {int(task['carrier']['index'])}: {where}")
        if backtrace and not running:
            with SavedRegisters(task["context"]["sp"]):
                gdb.execute("bt")


Threads()
