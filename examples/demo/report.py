"""What the demo measured: figures, table, checks and what went wrong."""

import math

ROW = "%-15s %8s %6s %13s %8s %9s %9s %9s  %s"

HEAD = ROW % ("policy", "requests", "errors", "cached tokens", "of ideal",
              "mean", "P95", "TTFT", "requests per engine")


def figures(runs, engines):
    """The figures of one policy; a run is the results of one seed."""
    results = [result for run in runs for result in run]
    good = [r for r in results if r.error is None]
    latencies = sorted(r.latency for r in good)

    # an engine may leave out the field when nothing was cached

    reported = any(r.cached_tokens is not None for r in good)
    cached = [r.cached_tokens or 0 for r in good]
    ideal = sum(r.ideal for r in good)

    counts = [[sum(r.engine == engine for r in run) for engine in engines]
              for run in runs]

    return {
        "requests": len(results),
        "errors": len(results) - len(good),
        "prompt_tokens": sum(r.prompt_tokens for r in good),
        "cached_tokens": sum(cached) if reported else None,
        "ideal_cached_tokens": ideal,
        "share_of_ideal": share(good) if reported else None,
        "share_of_ideal_round": middle(map(share, runs)) if reported else None,
        "rounds": [{
            "cached_tokens": sum(r.cached_tokens or 0 for r in run),
            "latency_mean_s": mean([r.latency for r in run if r.latency]),
        } for run in runs],
        "latency_mean_s": mean(latencies),
        "latency_p95_s": latencies[math.ceil(0.95 * len(latencies)) - 1]
        if latencies else None,
        "ttft_mean_s": mean([r.ttft for r in good if r.ttft is not None]),
        "per_engine": [sum(column) for column in zip(*counts)],
        "busiest_to_mean": middle(max(n) * len(n) / max(sum(n), 1)
                                  for n in counts),
    }


def share(results):
    """Of what could be cached the part that was.  What is cached beyond what
    the session itself has sent before, such as another one's system prompt,
    does not make up for what was lost."""
    good = [r for r in results if r.error is None]
    ideal = sum(r.ideal for r in good)

    return (sum(min(r.cached_tokens or 0, r.ideal) for r in good) / ideal
            if ideal else None)


def middle(values):
    """The one in the middle: of three rounds one may be disturbed by what else
    the machine does."""
    known = sorted(v for v in values if v is not None)

    return known[len(known) // 2] if known else None


def tokens(status):
    """Cached tokens, predicted and delivered, by the module's own status."""
    caches = [peer["cache"]
              for upstream in status["upstreams"].values()
              for peer in upstream["peers"]]

    return [sum(c[name + "_tokens"] for c in caches)
            for name in ("predicted", "delivered")]


def mean(values):
    return sum(values) / len(values) if values else None


def row(policy, f):
    """A policy's line of the table."""
    def show(value, text, factor=1):
        return "-" if value is None else text.format(value * factor)

    return ROW % (policy, f["requests"], f["errors"],
                  show(f["cached_tokens"], "{:,}"),
                  show(f["share_of_ideal"], "{:.1f} %", 100),
                  show(f["latency_mean_s"], "{:.0f} ms", 1000),
                  show(f["latency_p95_s"], "{:.0f} ms", 1000),
                  show(f["ttft_mean_s"], "{:.0f} ms", 1000),
                  "  ".join("%3d" % n for n in f["per_engine"]))


def headline(policies):
    """The table in a sentence, or nothing if it has not both policies."""
    try:
        a, b = policies["kv_cache"], policies["round_robin"]
        return ("kv_cache: %.1f times the cached tokens of round_robin, "
                "%.2f times its mean time" % (
                    a["cached_tokens"] / b["cached_tokens"],
                    a["latency_mean_s"] / b["latency_mean_s"]))
    except (KeyError, TypeError, ZeroDivisionError):
        return ""


def checks(policies, compared):
    """What must hold, as far as the policies that were run can show it; how
    they compare depends on the engines."""
    found = []

    def check(text, value, bound, limit):
        if value is not None:
            found.append({
                "check": text, "value": round(value, 4), bound: limit,
                "ok": value >= limit if bound == "min" else value <= limit})

    def ratio(name, other, of="kv_cache"):
        try:
            return middle(a[name] / b[name] for a, b in
                          zip(policies[of]["rounds"],
                              policies[other]["rounds"]))
        except (KeyError, TypeError, ZeroDivisionError):
            return None

    for policy, f in policies.items():
        check(policy + ": errors", f["errors"], "max", 0)

    kv = policies.get("kv_cache")

    if kv:
        check("kv_cache: cached tokens to the ideal",
              kv["share_of_ideal_round"], "min", 0.95)
        check("kv_cache: predicted to delivered cached tokens, less one",
              middle(abs(predicted / delivered - 1) if delivered else None
                     for predicted, delivered in kv["told"]), "max", 0.05)
        check("kv_cache: requests of the busiest engine to the mean",
              kv["busiest_to_mean"], "max", 1.5)

    if kv and compared:
        check("kv_cache: cached tokens to those of round_robin",
              ratio("cached_tokens", "round_robin"), "min", 2)
        check("kv_cache: mean latency to that of round_robin",
              ratio("latency_mean_s", "round_robin"), "max", 0.5)
        check("kv_cache: mean latency to that of least_request",
              ratio("latency_mean_s", "least_request"), "max", 1)
        check("with forks, kv_cache: cached tokens to those of sticky",
              ratio("cached_tokens", "sticky, forks", "kv_cache, forks"),
              "min", 1.05)
        check("with forks, kv_cache: mean latency to that of sticky",
              ratio("latency_mean_s", "sticky, forks", "kv_cache, forks"),
              "max", 1)

    return found


def misses(results, access_log, limit=10):
    """Where cached tokens were lost, with nginx's receipts; worst first."""
    with open(access_log) as f:
        receipts = dict(line.rstrip().split(" ", 3)[2:] for line in f)

    lost = sorted((r for r in results
                   if r.error is None and (r.cached_tokens or 0) < r.ideal),
                  key=lambda r: (r.cached_tokens or 0) - r.ideal)

    return ["%s: %d of %d tokens cached, %s" % (
        r.id, r.cached_tokens or 0, r.ideal, receipts.get(r.id, "no receipt"))
        for r in lost[:limit]]
