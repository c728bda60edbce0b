# Cached share and mean time to first token of each arm of a comparison, from an
# access log with arm=$arm cached=$kvroute_cached_tokens
# of=$kvroute_prompt_tokens ttft=$kvroute_ttft (docs/worth-it.md).

{
    delete v
    for (i = 1; i <= NF; i++) {
        n = index($i, "=")
        if (n) v[substr($i, 1, n - 1)] = substr($i, n + 1)
    }
}

v["of"] > 0 {
    arm = v["arm"] == "" || v["arm"] == "-" ? "kvroute" : v["arm"]
    requests[arm]++
    of[arm] += v["of"]
    cached[arm] += v["cached"]
    ttft[arm] += v["ttft"]
}

END {
    for (arm in requests)
        printf "%-12s %d requests  cached %5.1f%%  ttft %.3f s\n", arm,
               requests[arm], 100 * cached[arm] / of[arm],
               ttft[arm] / requests[arm]
}
