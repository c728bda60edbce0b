/* what the words of the page mean: docs/glossary.md has the same (t/docs.t) */

const words = {
  "server": "an engine as nginx knows it, by its address",
  "servers": "how many there are, and in which states",
  "state": "whether it gets requests, and if not, why",
  "active": "requests in flight",
  "pending": "bytes of prompts that were sent there and are not computed yet",
  "load": "bytes of prompts it was given of late to those it can compute: "
    + "near 1 it has all it can do",
  "requests / s": "requests sent to it, in the last second",
  "cached share": "of the bytes of prompts, the part that the chosen server "
    + "held",
  "regret": "of the bytes of prompts, the part computed again although "
    + "another server held it",
  "cache hits as predicted": "cached tokens that engines reported, to those "
    + "that were expected",
  "KV use": "share of its KV cache in use, by the engine's own metrics",
  "KV events": "whether the index goes by what the engine publishes of its "
    + "cache; messages that were lost; the last sign of life",
  "running / waiting": "requests inside the engine, by its own metrics",
  "TTFT": "mean time to the first token, of streams",
  "TTFT median": "median time to the first token, of streams",
  "errors / min": "answers of 5xx, and none at all, in the last minute",
  "4xx / min": "answers of 400 to 499 in the last minute: the client's fault, "
    + "unless other servers do not answer so",
  "5xx": "answers of 500 to 599, since the counters began",
  "fails": "attempts that nginx counts as failed (max_fails)",
  "not computed": "tokens of prompts that were in the cache of the chosen "
    + "server",
  "prefill saved": "time that an engine would have taken to compute these",
  "hottest server": "the one with the most requests in flight",
  "decision P99": "99 of 100 decisions took less, with reading the body",
  "found": "share of the prompts that the servers held which the other "
    + "method has chosen",
  "would be found": "share of the prompts that the servers held which kvroute "
    + "would have chosen",
  "same server": "requests for which both have chosen the same server",
  "prefill servers": "of the upstream that computes prompts for this one",
  "by two servers": "requests that were computed by one server and answered "
    + "by another",
  "fell back": "requests whose prefill was for nothing, or not to be had",
  "by one server": "requests that one server serves better, or must serve",
  "leg 1 median": "median time that the prefill takes, with all servers that "
    + "were tried",
  "outcome": "$kvroute_disaggregated of the access log",
  "of late": "requests of the time that is said above",
  "in all": "requests since the counters began",
  "why": "what it means, and where to look",
  "model": "the model that the body names",
  "tenant": "whoever kvroute_tenant tells apart",
  "requests": "requests that have ended at a server",
  "errors": "of these, answers of 5xx, and none at all",
  "rejected": "requests that the queue has refused",
  "prompts": "bytes of prompts",
  "class": "of the queue, by kvroute_priority",
  "waiting": "requests in the queue, and how many may be",
  "admitted / s": "requests that leave the queue for a server",
  "wait median": "median time in the queue, of those that were let in",
  "passed": "requests that did not have to wait",
  "waited": "requests that were let in after waiting",
  "mean wait": "mean time in the queue, of those that were let in",
  "full": "refused: no place in the queue",
  "timeout": "refused: waited too long",
  "deadline": "refused: its deadline has passed",
  "shed": "refused: gave its place to a better one",
  "aborted": "the client left while it waited",
  "reason": "why this server was chosen",
  "policy": "the policy that chose it",
  "prompt": "bytes of the prompt",
  "matched": "bytes of it that the chosen server held",
  "best": "bytes of it that the server held which has most of it",
  "hash": "keyed hash of the prompt: the same for equal prompts",
  "fill": "share of the index in use",
  "evicted": "entries of the index that went for others while in use",
  "processes": "worker processes that count in the zone, and how many may",
  "other hosts": "that route as one with this one, by kvroute_share",
  "lessons": "what other hosts have taught this one, and it them; the lag is"
    + " from the making of a batch to its coming back"
};

/*
 * What became of a request with kvroute_prefill, as docs/prefill-decode.md has
 * it: two servers, or one since a prefill came to nothing, or one as it is better
 */

const outcomes = {
  "failed": { kind: "bad", means: "the prefill failed: see the prefill servers, "
    + "and $kvroute_leg1_status in the access log" },
  "answer": { kind: "bad", means: "the prefill server told of no transfer: is "
    + "the connector configured there?" },
  "nobody": { kind: "bad", means: "no server of one of the two pools was to be "
    + "had" },
  "late": { kind: "bad", means: "the decode server was connected to too late: "
    + "the prompt was computed again" },
  "retried": { kind: "bad", means: "the decode server failed, and another one "
    + "computed the prompt again" },
  "yes": { kind: "two", means: "two servers have served it" },
  "unread": { kind: "one", means: "its body gave no prompt" },
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
  ...(c.target_ttft_ms ? [`max_pending=auto (target_ttft=${c.target_ttft_ms}ms)`]
    : []),
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
