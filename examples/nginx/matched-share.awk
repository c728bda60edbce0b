# Matched share and regret of each peer, from an access log in simple.conf's format:
#
#     awk -f matched-share.awk /var/log/nginx/llm.log

{
    for (i = 1; i <= NF; i++) {
        n = index($i, "=")
        if (n) v[substr($i, 1, n - 1)] = substr($i, n + 1)
    }

    if (v["prompt"] + 0 > 0) {
        p = v["peer"]
        requests[p]++
        prompt[p] += v["prompt"]
        matched[p] += v["matched"]
        best[p] += v["best"]
    }

    delete v
}

END {
    for (p in prompt) {
        printf "%-24s %8d requests  matched %5.1f%%  regret %5.1f%%\n", p,
               requests[p], 100 * matched[p] / prompt[p],
               100 * (best[p] - matched[p]) / prompt[p] | "sort"
    }
}
