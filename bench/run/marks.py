"""From readings to figures, and what keeps a cell from being ranked."""

CARRIED_LEAST = 0.97
WINDOW_OFF = 0.05
BUSY_OTHERS_PERCENT = 15.0
STARVED_PERCENT = 10.0
WHOLE_CORE_PERCENT = 95.0
WRONG_REPLIES = ("mismatch", "protocol", "reordered", "unexpected")
KEPT = ("status", "message", "start_unix", "end_unix", "config", "connections", "messages", "steady", "whole",
        "latency_us", "connect_us", "handshake_us", "lag_us", "errors", "cpu", "bottleneck", "bottleneck_reason")


def keep(load):
    """The part of the generator's result that is stored with the cell."""
    return {k: load[k] for k in KEPT if k in load} if load else None


def offered_per_s(workload, load):
    """Messages a second that should have come back in the open loop; None in the closed one."""
    config, messages = load["config"], load["messages"]
    if config["loop"] != "open" or not messages["sent"]:
        return None
    senders = config["senders"] if workload.broadcast else config["connections"]
    return config["rate"] * senders * messages["expected"] / messages["sent"]


def fill(record, workload, load, window, kernel_before):
    """Figures, marks and notes of a cell that ran to its end."""
    start, end = window.start, window.end
    seconds = end["clock"] - start["clock"]
    cpu_s = sum(end["process"][k] - start["process"][k] for k in ("user_s", "system_s"))
    section = load["whole"] if workload.storm else load["steady"]
    record["measures"] = {
        "cpu_percent": 100.0 * cpu_s / seconds,
        "cpu_user_percent": 100.0 * (end["process"]["user_s"] - start["process"]["user_s"]) / seconds,
        "rss": end["process"]["rss"],
        # The mark is read after the size, but the kernel lets it fall behind by some pages.
        "rss_peak": end["rss_peak"] and max(end["rss_peak"], end["process"]["rss"]),
        "kernel_stack": end["kernel"]["KernelStack"] - kernel_before["KernelStack"],
        "kernel_slab": end["kernel"]["Slab"] - kernel_before["Slab"],
        "threads": end["process"]["threads"],
        "lost": load["connections"]["failed"] + load["connections"]["lost"],
        "messages_lost": load["messages"]["lost"],
    }
    if workload.broadcast:
        record["measures"]["muted_closed"] = load["connections"]["muted_closed"]
    if workload.storm:
        _fill_storm(record["measures"], load)
    else:
        _fill_messages(record["measures"], load, section, cpu_s, seconds)
        offered = offered_per_s(workload, load)
        record["measures"]["carried"] = section["received_per_s"] / offered if offered else None
    load_s = load["cpu"]["percent"] / 100.0 * seconds
    others = 100.0 * (end["machine_s"] - start["machine_s"] - cpu_s - load_s) / seconds
    busy = others > BUSY_OTHERS_PERCENT
    record["measures"]["others_percent"] = others
    record["marks"] = _marks(record["measures"], workload, load, busy)
    if not workload.storm and abs(seconds - load["steady"]["window_s"]) > WINDOW_OFF * load["steady"]["window_s"]:
        record["marks"].append("server was not read at the ends of the window")
    record["notes"] = _notes(record["measures"], workload, load, busy)


def _fill_storm(measures, load):
    measures.update({
        "handshakes_per_s": load["connections"]["handshakes_per_s"],
        "open_s": load["connections"]["all_open_s"],
        "handshake_p50_us": load["handshake_us"]["p50"],
        "handshake_p99_us": load["handshake_us"]["p99"],
    })


def _fill_messages(measures, load, section, cpu_s, seconds):
    latency = load["latency_us"]
    rate = section["received_per_s"]
    measures.update({
        "cpu_us_per_message": 1e6 * cpu_s / seconds / rate if rate else None,
        "mbps_down": section["mbps_down"],
        "mbps_up": section["mbps_up"],
        "messages_per_s": rate,
        "p50_us": latency["p50"],
        "p99_us": latency["p99"],
        "p999_us": latency["p999"],
    })


def of_load(load):
    """Reasons not to rank that any generator's result can hold, without figures, so that rounds can share them."""
    marks = []
    if load["connections"]["failed"]:
        marks.append("refused connections")
    if load["connections"]["lost"]:
        marks.append("lost connections")
    for kind in WRONG_REPLIES:
        if load["errors"].get(kind):
            marks.append(f"wrong replies ({kind})")
    return marks


def _waited_for_a_core(load):
    """The generator was late because its threads got no core, not because they had too much to do."""
    cpu = load["cpu"]
    waits = [w for w in cpu.get("threads_wait_percent", []) if w is not None]
    return load["bottleneck"] and max(waits, default=0.0) >= STARVED_PERCENT and \
        max(cpu["threads_percent"], default=0.0) < WHOLE_CORE_PERCENT


def _behind(measures):
    carried = measures.get("carried")
    return carried is not None and carried < CARRIED_LEAST


def _unanswered(measures, load):
    """Sent, not answered when the drain ended, on connections that live: with a server that is behind, most likely
    still queued; with one that kept up, lost."""
    return load["messages"]["lost"] > 0 and _behind(measures) and not load["connections"]["lost"]


def _marks(measures, workload, load, others_busy):
    marks = of_load(load)
    if load["bottleneck"]:
        if not _waited_for_a_core(load):
            marks.append("limited by the generator")
        elif others_busy:
            marks.append("other programs took the machine")
    if load["messages"]["lost"] and not _unanswered(measures, load):
        marks.append("lost messages")
    if workload.deflate and load["connections"]["deflate"] < load["connections"]["open"]:
        marks.append("deflate not agreed")
    if _behind(measures) and workload.rank_by != "mbps_down":
        marks.append("did not carry the load")
    return marks


def _notes(measures, workload, load, others_busy):
    """Things to know that do not spoil the figures."""
    notes = []
    if others_busy:
        notes.append("other programs were busy")
    if _waited_for_a_core(load) and not others_busy:
        notes.append("machine full: the generator waited for a core")
    if _unanswered(measures, load) and workload.rank_by == "mbps_down":
        notes.append("far behind: not all was answered when the run ended")
    if not load["config"]["verify"]:
        notes.append("replies were not compared")
    return notes
