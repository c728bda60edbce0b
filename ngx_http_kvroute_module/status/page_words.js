/* what the words of the page mean: docs/glossary.md has the same (t/docs.t) */

const words = {
  "server": "an engine by its address, as nginx knows it",
  "servers": "number of servers by state",
  "state": "whether it receives requests, and if not, why",
  "active": "requests in flight",
  "pending": "prompt bytes sent there and not computed yet",
  "load": "prompt bytes sent recently, relative to what it can compute: "
    + "saturated near 1",
  "requests / s": "requests sent to it in the last second",
  "cached share": "share of prompt bytes that the chosen server had cached",
  "regret": "missed cache share: prompt bytes computed again although another "
    + "server had them cached",
  "cache hits as predicted": "cached tokens reported by engines, relative to "
    + "the predicted ones",
  "KV use": "share of its KV cache in use, by the engine's metrics",
  "KV events": "whether the index follows the engine's KV events; lost "
    + "messages; time since the last message",
  "running / waiting": "requests inside the engine, by its metrics",
  "TTFT": "mean time to first token of streams",
  "TTFT median": "median time to first token of streams",
  "errors / min": "5xx responses and no response, in the last minute",
  "4xx / min": "answers of 400 to 499 in the last minute: the client's fault, "
    + "unless other servers do not answer so",
  "5xx": "responses 500 to 599 since the counters were reset",
  "fails": "attempts that nginx counts as failed (max_fails)",
  "not computed": "prompt tokens that the chosen server had cached",
  "prefill saved": "engine time that these tokens would have taken",
  "hottest server": "the server with the most requests in flight",
  "decision P99": "99 % of decisions take less, including reading the body",
  "found": "share of prompt bytes cached on the servers that the other method "
    + "chose",
  "would be found": "share of prompt bytes cached on the servers that kvroute "
    + "would have chosen",
  "same server": "requests for which both methods chose the same server",
  "prefill servers": "servers of the upstream that computes prompts for this "
    + "one",
  "by two servers": "requests with a prefill server and a decode server",
  "fell back": "requests whose prefill was wasted or unavailable",
  "by one server": "requests that one server serves faster, or must serve "
    + "alone",
  "leg 1 median": "median time that the prefill takes, with all servers that "
    + "were tried",
  "outcome": "$kvroute_disaggregated of the access log",
  "recent": "requests in the period shown above",
  "total": "requests since the counters were reset",
  "why": "what it means and where to look",
  "model": "the model in the request body",
  "tenant": "the tenant, by kvroute_request tenant=",
  "requests": "completed requests",
  "errors": "5xx responses and no response, of these requests",
  "rejected": "requests that the queue has rejected",
  "prompts": "prompt bytes",
  "class": "class in the queue, by kvroute_request priority=",
  "waiting": "requests in the queue, and the maximum",
  "admitted / s": "requests per second that leave the queue for a server",
  "wait median": "median queue time of admitted requests",
  "passed": "requests that bypassed the queue",
  "waited": "requests admitted after waiting",
  "mean wait": "mean queue time of admitted requests",
  "full": "rejected: the queue is full",
  "timeout": "rejected: queue timeout",
  "deadline": "rejected: deadline exceeded",
  "shed": "rejected: displaced by a request of a higher class",
  "aborted": "the client closed the connection while waiting",
  "reason": "why this server was chosen",
  "policy": "the policy that chose it",
  "prompt": "prompt bytes",
  "matched": "prompt bytes that the chosen server had cached",
  "best": "most prompt bytes that any server had cached",
  "hash": "keyed hash of the prompt: the same for equal prompts",
  "fill": "share of the index in use",
  "evicted": "index entries evicted while still in use",
  "processes": "worker processes with counters in the zone, and the maximum",
  "other hosts": "hosts that share this zone, by kvroute_share",
  "lessons": "index updates received from other hosts and sent to them; the "
    + "lag is the time until an own batch comes back"
};

/*
 * Outcomes of a request with kvroute_prefill, as in docs/prefill-decode.md: two
 * servers; one server after a failure; one server because that is faster
 */

const outcomes = {
  "failed": { kind: "bad", means: "the prefill failed: see the prefill servers, "
    + "and $kvroute_leg1_status in the access log" },
  "answer": { kind: "bad", means: "the prefill server reported no transfer: is "
    + "the connector configured there?" },
  "nobody": { kind: "bad", means: "no server of one of the two pools was "
    + "available" },
  "late": { kind: "bad", means: "the connection to the decode server came too "
    + "late: the prompt was computed again" },
  "retried": { kind: "bad", means: "the decode server failed, and another one "
    + "computed the prompt again" },
  "yes": { kind: "two", means: "two servers have served it" },
  "unread": { kind: "one", means: "no prompt was found in the body" },
  "kind": { kind: "one", means: "one server must serve such a request" },
  "short": { kind: "one", means: "the prompt is shorter than min=" },
  "cached": { kind: "one", means: "a decode server holds all but min= of it" },
  "cost": { kind: "one", means: "two servers would have cost more" }
};

/* where the capacity of a server's cache comes from */

const sources = {
  api: "set by the API", configured: "capacity= with \"!\"",
  events: "by its KV events", reported: "by its engine's metrics",
  learned: "learned from its answers", assumed: "capacity=, nothing is known"
};

/* causes of health as sentences, by code: docs/status.md has the same list */

const listed = (w) => w.servers.map((s) => s.state === "up" ? s.name
    : `${s.name} (${s.state}${s.reason ? ": " + s.reason : ""})`).join(", ")
  + (w.number > w.servers.length
    ? ` and ${w.number - w.servers.length} more` : "");

const some = (w, what) => `${w.number} of ${w.of} servers ${what}: `
  + listed(w);

const capped = (c) => [
  ...(c.max_conns ? [`max_conns=${c.max_conns}`] : []),
  ...(c.target_ttft_ms
    ? [`max_pending=${c.target_ttft_ms / 2}ms`] : []),
  ...(c.max_pending ? [`max_pending=${bytes(c.max_pending)}`] : []),
  ...(c.max_waiting !== undefined ? [`max_waiting=${c.max_waiting}`] : [])
].join(" or ") || "its cap";

const hints = {
  "401": "is its API key another one?",
  "403": "is its API key another one?",
  "404": "does it have another model?",
  "429": "does it have another limit?",
  "503": "does it have another limit?"
};

const sentences = {
  "locked": () => "the list of servers is locked: if it stays so, a killed "
    + "process holds the lock, see the error log",
  "none_up": (w) => `none of ${w.of} servers is up`
    + (w.servers ? ": " + listed(w) : ""),
  "not_up": (w) => some(w, "not up"),
  "errors": (w) => `${w.servers[0].name} fails: ${w.percent}% of its `
    + `${w.requests} requests in the last minute, ${w.percent_of_all}% of all `
    + "requests",
  "client_errors": (w) => w.servers[0].name + (w.requests
    ? ` answers ${w.status} to ${w.percent}% of requests, others to `
      + `${w.percent_elsewhere}%: ` : ` answered ${w.status}: `)
    + (hints[w.status] || "is it configured differently, or are these the "
       + "requests of one client?"),
  "rejects": (w) => `${w.percent}% of requests rejected in the last minute `
    + `(${w.rejects}): every server is at ${capped(w.caps)}`
    + (w.load === undefined ? "" : `, load is ${Math.round(100 * w.load)}%`),
  "slow": (w) => `${w.servers[0].name} is slow: first tokens after `
    + `${time(w.ttft_ms / 1000)}, elsewhere after ${time(w.others_ms / 1000)}`,
  "hot": (w) => `${w.servers[0].name} is hot: ${w.active} of ${w.of} requests `
    + "in flight",
  "old_metrics": (w) => `old metrics, because the probe fails: ${listed(w)}`,
  "not_sharing": (w) => `nothing was shared with other hosts for ${w.seconds} `
    + "s: the error log has the reason, see kvroute_share",
  "drained": (w) => some(w, "drained by the operator"),
  "no_counters": (w) => some(w, "without counters, because the zone is full")
};

const sentence = (w) => (sentences[w.code] || (() => w.code))(w);

const explain = (e, word) => {
  if (Object.hasOwn(words, word)) e.title = words[word];
};
