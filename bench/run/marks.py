"""From readings to figures, and what keeps a cell from being ranked."""

CARRIED_LEAST = 0.97
BUSY_OTHERS_PERCENT = 15.0
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
        "rss_peak": end["rss_peak"],
        "kernel_stack": end["kernel"]["KernelStack"] - kernel_before["KernelStack"],
        "kernel_slab": end["kernel"]["Slab"] - kernel_before["Slab"],
        "threads": end["process"]["threads"],
        "lost": load["connections"]["failed"] + load["connections"]["lost"],
        "messages_lost": load["messages"]["lost"],
    }
    if workload.storm:
        _fill_storm(record["measures"], load)
    else:
        _fill_messages(record["measures"], load, section, cpu_s, seconds)
        offered = offered_per_s(workload, load)
        record["measures"]["carried"] = section["received_per_s"] / offered if offered else None
    record["marks"] = _marks(record["measures"], workload, load)
    record["notes"] = _notes(load, start, end, seconds, cpu_s)


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
    if load["bottleneck"]:
        marks.append("limited by the generator")
    if load["connections"]["failed"]:
        marks.append("refused connections")
    if load["connections"]["lost"]:
        marks.append("lost connections")
    if load["messages"]["lost"]:
        marks.append("lost messages")
    for kind in ("mismatch", "protocol", "reordered", "unexpected"):
        if load["errors"].get(kind):
            marks.append(f"wrong replies ({kind})")
    return marks


def _marks(measures, workload, load):
    marks = of_load(load)
    if workload.deflate and load["connections"]["deflate"] < load["connections"]["open"]:
        marks.append("deflate not agreed")
    carried = measures.get("carried")
    if workload.rank_by == "cpu_percent" and carried is not None and carried < CARRIED_LEAST:
        marks.append("did not carry the load")
    return marks


def _notes(load, start, end, seconds, cpu_s):
    """Things to know that do not spoil the figures."""
    notes = []
    load_s = load["cpu"]["percent"] / 100.0 * seconds
    others = 100.0 * (end["machine_s"] - start["machine_s"] - cpu_s - load_s) / seconds
    if others > BUSY_OTHERS_PERCENT:
        notes.append("other programs were busy")
    if not load["config"]["verify"]:
        notes.append("replies were not compared")
    return notes
