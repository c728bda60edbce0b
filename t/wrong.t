#!/usr/bin/perl

# Wrong configurations, as operators write them, and the words with which
# "nginx -t" must answer: what is wrong, where, and what to write instead.
#
# A row of the table: the place, the text written there, "refused" or "warned",
# and words of the message, where "..." stands for any others.  The text
# replaces this in a valid configuration:
#
#     zone        kvroute_zone zone=llm:1m;
#     upstream    kvroute zone=llm;
#     location    nothing; the location has proxy_pass http://llm;
#     instead     all of the location
#     http        nothing

use lib 't/lib';
use Kvroute;

use JSON::PP;

my $table = <<'EOT';

zone     | kvroute_zone;                               | refused | invalid number of arguments
zone     | kvroute_zone llm:16m;                       | refused | invalid parameter "llm:16m": known are zone= max_peers= hosts= key_file= snapshot=
zone     | kvroute_zone name=llm size=16m;             | refused | invalid parameter "name=llm": known are zone=
zone     | kvroute_zone zone=llm;                      | refused | must be NAME:SIZE, where SIZE ends in k or m
zone     | kvroute_zone zone=:16m;                     | refused | must be NAME:SIZE, where SIZE ends in k or m
zone     | kvroute_zone zone=llm:64k;                  | refused | "zone=llm:64k" is too small, it needs ...k at least
zone     | kvroute_zone zone=llm:512k;                 | refused | "zone=llm:512k" is too small, it needs ...k at least
zone     | kvroute_zone zone=llm:64g;                  | refused | invalid zone size "zone=llm:64g": must be NAME:SIZE, where SIZE ends in k or m
zone     | kvroute_zone zone=llm:16MB;                 | refused | invalid zone size "zone=llm:16MB": must be NAME:SIZE, where SIZE ends in k or m
zone     | kvroute_zone zone=llm:big;                  | refused | invalid zone size "zone=llm:big": must be NAME:SIZE, where SIZE ends in k or m
zone     | kvroute_zone zone=llm:1m zone=two:1m;       | refused | duplicate parameter "zone=two:1m"
zone     | kvroute_zone zone=llm:1m; kvroute_zone zone=llm:2m; | refused | "llm"
zone     | kvroute_zone zone=llm:1m; kvroute_zone zone=llm:1m; | refused | duplicate kvroute_zone "llm"
zone     | kvroute_zone zone=llm:1m max_peer=8;        | refused | invalid parameter "max_peer=8": known are zone= max_peers=
zone     | kvroute_zone zone=llm:1m max_peers=600;     | refused | "max_peers=600" must be between 1 and 512
zone     | kvroute_zone zone=llm:1m hosts=0;           | refused | "hosts=0" must be between 1 and 1024
zone     | kvroute_zone zone=llm:1m hosts=3;           | refused | "hosts" needs "key_file=FILE", the same on all hosts
zone     | kvroute_zone zone=llm:1m key_file=;         | refused | "key_file=" must be the name of a file
zone     | kvroute_zone zone=llm:1m key_file=/no/such; | refused | key_file "/no/such": open() failed
zone     | kvroute_zone zone=llm:1m snapshot=nowhere/llm; | refused | the folder of "snapshot=...nowhere/llm" is not there ... No such file
zone     | kvroute_zone zone=llm:1m max_peers=1;       | warned | upstream "llm" in ... has 2 servers, "max_peers=" of "kvroute_zone zone=llm" is 1: the others are balanced by load only
http     | upstream one { zone one 64k; kvroute zone=llm; server 127.0.0.1:9; } | warned | "kvroute" in upstream "one" in ... has one server to choose from
zone     | kvroute_zone zone=llm:1m; kvroute_zone zone=old:1m; | warned | "kvroute_zone zone=old" is used by no upstream: write "kvroute zone=old;" in one

http     | kvroute_share;                                        | refused | invalid number of arguments
http     | kvroute_share zone=llm;                               | refused | must have "zone" and "server" parameters: "zone=NAME server=redis://HOST"
http     | kvroute_share zone=llm server=redis://127.0.0.1;      | refused | needs "key_file=FILE" of "kvroute_zone", the same on all hosts
http     | kvroute_share zone=lm server=redis://127.0.0.1;       | refused | zone "lm" is unknown: "kvroute_share" must come after "kvroute_zone zone=lm:SIZE key_file=FILE"
http     | kvroute_share zone=llm server=127.0.0.1:6379;         | refused | "server=" must be redis://HOST:PORT, valkey://HOST:PORT, or with TLS rediss://
http     | kvroute_share zone=llm server=redis://;               | refused | "server=" must be redis://HOST:PORT
http     | kvroute_share zone=llm server=redis://a/0;            | refused | "server=" must be redis://HOST:PORT
http     | kvroute_share zone=llm server=redis://u:p@127.0.0.1;  | refused | a password in "server=" is visible in the configuration: put it into a file and write "password_file=FILE"
http     | kvroute_share zone=llm server=redis://127.0.0.1 password_file=; | refused | "password_file=" must be the name of a file
http     | kvroute_share zone=llm server=redis://127.0.0.1 password_file=/no/such; | refused | password_file "/no/such": open() failed
http     | kvroute_share zone=llm server=redis://127.0.0.1 max_con=fleet; | refused | invalid parameter "max_con=fleet": known are zone= server= password_file= name= max_conns=
http     | kvroute_share zone=llm server=redis://127.0.0.1 max_conns=all; | refused | "max_conns=" must be one of "local fleet"

upstream | kvroute;                                    | refused | invalid number of arguments
upstream | kvroute kv_cache;                           | refused | must have "zone" parameter: "zone=" and the name of a "kvroute_zone"
upstream | kvroute roundrobin zone=llm;                | refused | unknown policy "roundrobin": known are kv_cache least_request round_robin random sticky
upstream | kvroute cache_aware zone=llm;               | refused | unknown policy "cache_aware": known are kv_cache
upstream | kvroute off zone=llm;                       | refused | policy "off" is for locations
upstream | kvroute zone=llm kv_cache;                  | refused | invalid parameter "kv_cache": the policy must be the first word
upstream | kvroute zone=lm;                            | refused | kvroute zone "lm" is unknown in upstream "llm" ...: declare "kvroute_zone zone=lm:16m;" in http
upstream | kvroute zone=;                              | refused | "zone=" must be the name of a "kvroute_zone"
upstream | kvroute zone=llm capcity=4m;                | refused | invalid parameter "capcity=4m": known are zone= capacity=
upstream | kvroute zone=llm weight=2;                  | refused | invalid parameter "weight=2": known are zone= capacity= ... slow_start=
upstream | kvroute zone=llm capacity=lots;             | refused | "capacity=" must be a size such as 64m, 256 bytes at least, ...: invalid value in parameter "capacity=lots"
http     | upstream one { zone one 64k; kvroute zone=llm; server 127.0.0.1:9; } upstream two { zone two 64k; kvroute zone=llm capacity=64m!; server 127.0.0.1:9; } | warned | "capacity=" in upstream "two" in ... differs from that in "one", and both have server "127.0.0.1:9" of a zone: write the same value in both
http     | upstream one { zone one 64k; kvroute zone=llm; server 127.0.0.1:9; } upstream two { zone two 64k; kvroute zone=llm capacity=64m+1g; server 127.0.0.1:9; } | warned | "capacity=" in upstream "two" in ... differs from that in "one", and both have server "127.0.0.1:9" of a zone: write the same value in both
upstream | kvroute zone=llm max_pending=automatic;     | refused | "max_pending=" must be a size such as 256k, a time such as 500ms, or auto
upstream | kvroute zone=llm max_waiting=8;             | warned  | "max_waiting" in upstream "llm" ... needs "kvroute_probe"
upstream | kvroute zone=llm slow_start=soon;           | refused | "slow_start=" must be a time such as 30s
upstream | kvroute kv_cache zone=llm timeout=1h;       | refused | "timeout=1h" is not one of policy "kv_cache", but of "sticky"
upstream | kvroute zone=llm chunks=tie;                | refused | there is no parameter "chunks=tie" any more: remove it, engines reuse prefixes only
upstream | kvroute zone=llm threshold=0.3;             | refused | there is no parameter "threshold=0.3" any more: remove it, short matches do not decide
upstream | kvroute zone=llm balance_abs=64;            | refused | there is no parameter "balance_abs=64" any more: remove it, the cost of a server includes its load
upstream | kvroute least_request zone=llm by=pending;  | refused | there is no parameter "by=pending" any more: remove it, "least_request" compares requests in flight
upstream | kvroute prefix zone=llm;                    | refused | unknown policy "prefix": known are kv_cache least_request round_robin random sticky
upstream | kvroute random zone=llm seed=4;             | refused | invalid parameter "seed=4": known are zone=
upstream | kvroute zone=llm; kvroute zone=llm;         | refused | "kvroute" directive is duplicate
upstream | kvroute zone=llm; least_conn;               | refused | is replaced by a load balancing method after it: remove that one
upstream | kvroute zone=llm; ip_hash;                  | refused | is replaced by a load balancing method after it: remove that one
upstream | kvroute zone=llm; hash $uri;                | refused | is replaced by a load balancing method after it: remove that one
upstream | kvroute zone=llm; random;                   | refused | is replaced by a load balancing method after it: remove that one
upstream | least_conn; kvroute zone=llm;               | warned  | "kvroute" takes the place of the one before it, remove that one
upstream | keepalive 8; kvroute zone=llm;              | warned  | "keepalive" before "kvroute" has no effect: write it after "kvroute"
upstream | kvroute zone=llm; kvroute_policy sticky;    | refused | "kvroute_policy" directive is not allowed here
http     | kvroute kv_cache zone=llm;                  | refused | "kvroute" directive is not allowed here

upstream | kvroute zone=llm; kvroute_shadow zone=llm;  | refused | "kvroute_shadow" directive cannot be in one upstream with the other one: "kvroute" routes, "kvroute_shadow" only counts
upstream | kvroute_shadow zone=llm; least_conn; kvroute zone=llm; | refused | "kvroute" directive cannot be in one upstream with the other one
upstream | kvroute_shadow zone=llm; kvroute_shadow zone=llm; | refused | "kvroute_shadow" directive is duplicate
upstream | kvroute_shadow least_conn;                  | refused | "kvroute_shadow" must have "zone" parameter
upstream | kvroute_shadow sticky zone=llm;             | refused | policy "sticky" is not for "kvroute_shadow": another method chooses the servers of sessions
upstream | kvroute_shadow zone=llm; kvroute_queue max=9; | refused | "kvroute_queue" directive needs "kvroute": with "kvroute_shadow" no request waits

upstream | kvroute zone=llm max_pending=1m; kvroute_queue 100; | refused | invalid parameter "100": known are max= timeout=
upstream | kvroute zone=llm max_pending=1m; kvroute_queue timeout=5s; | refused | must have "max" parameter: "max=" and a number of requests
upstream | kvroute zone=llm max_pending=1m; kvroute_queue max=100 time=5s; | refused | invalid parameter "time=5s": known are max= timeout=
upstream | kvroute_queue max=100; kvroute zone=llm;    | refused | "kvroute_queue" directive must come after "kvroute"
upstream | kvroute zone=llm; kvroute_queue max=100;    | warned  | has no effect without a cap: set "max_pending" of "kvroute", or "max_conns" of servers

http     | upstream q { zone q 64k; kvroute zone=llm max_pending=1m; kvroute_queue max=9; server 127.0.0.1:9; } server { location / { set $pool q; proxy_pass http://$pool; } } | warned | "kvroute_queue" in upstream "q" in ... has no effect: no "proxy_pass" names the upstream literally, write "kvroute_request upstream=q;" beside the "proxy_pass" with a variable


location | kvroute_prefill llm connector=sgl;           | refused | "connector=" must be one of "nixl store header sglang mooncake pull"
location | kvroute_prefill llm connector=sglang min=8k; | refused | "min=8k" of "kvroute_prefill" has no effect with "connector=sglang": remove it
location | kvroute_prefill llm fallback=none connector=sglang; | refused | "fallback=none" of "kvroute_prefill" has no effect with "connector=sglang"
location | kvroute_prefill llm connector=nixl:8998;     | refused | "connector=nixl:8998" of "kvroute_prefill" must be sglang, mooncake or pull if it has a port
location | kvroute_prefill llm connector=pull timeout=9s;    | refused | "timeout=9s" of "kvroute_prefill" has no effect with "connector=pull": remove it
location | kvroute_prefill llm connector=pull min=8k!;      | refused | "!" in "min=" of "kvroute_prefill" has no effect with "connector=pull": remove it
http     | upstream q { kvroute zone=llm; server 127.0.0.1:9; } server { location / { kvroute_prefill q connector=pull; proxy_pass http://llm; } } | refused | "kvroute_prefill q" with "connector=pull" in location "/" must name the upstream of "proxy_pass", "llm": its servers fetch from each other
http     | upstream q { kvroute zone=llm; server unix:/p; } server { location / { kvroute_prefill q connector=pull; proxy_pass http://q; } } | refused | server "unix:/p" in upstream "q" in ... must have a host and a port: with "connector=pull" of "kvroute_prefill" other servers connect to it
location | kvroute_prefill llm transfer=20g/;            | refused | "transfer=" must be between 0 and 100, as 0.2: the time to transfer a token / the time to compute it; or bytes a second of a link / bytes of keys and values a token, as 20g/128k: invalid value in parameter "transfer=20g/"
location | kvroute_prefill llm transfer=0/128k;          | refused | "transfer=0/128k" must be between 0 and 100, as 0.2: the time
location | kvroute_prefill llm transfer=1/2/3;           | refused | "transfer=" must be between 0 and 100, as 0.2: the time
location | kvroute_prefill llm connector=sglang:0;      | refused | and the port between 1 and 65535
location | kvroute_prefill llm connector=sglang:;       | refused | and the port between 1 and 65535
location | kvroute_prefill llm;                         | refused | "kvroute_prefill llm" in location "/" names the upstream of "proxy_pass": write the name of the upstream of the prefill servers, or off
http     | kvroute_prefill llm;                         | warned  | "kvroute_prefill llm" in location "/" names the upstream of "proxy_pass"
instead  | location / { kvroute_prefill llm; set $pool llm; proxy_pass http://$pool; } | warned | "kvroute_prefill" in location "/" has no effect: "proxy_pass" must name the upstream of the decode servers literally, not by a variable
http     | kvroute_prefill p; upstream p { server 127.0.0.1:9; } | refused | upstream "p" of "kvroute_prefill" has no "kvroute": declare it above
http     | kvroute_zone zone=two:1m; kvroute_prefill p; upstream p { kvroute zone=two; server 127.0.0.1:9; } | refused | upstreams "p" and "llm" of "kvroute_prefill" in location "/" must have the same "zone=" in their "kvroute", or write "kvroute_prefill off;" where it is inherited
http     | upstream p { server 127.0.0.1:9; } server { location / { kvroute_prefill llm; proxy_pass http://p; } } | refused | "kvroute_prefill" in location "/" needs "kvroute" in upstream "p" as well: it has the decode servers
http     | upstream p { kvroute zone=llm; server unix:/p; } server { location / { kvroute_prefill p connector=mooncake; proxy_pass http://llm; } } | refused | server "unix:/p" in upstream "p" in ... must have a host and a port: with "connector=mooncake" of "kvroute_prefill" other servers connect to it

upstream | kvroute zone=llm; kvroute_ranks;            | refused | invalid number of arguments
upstream | kvroute zone=llm; kvroute_ranks 1;          | refused | "kvroute_ranks" must be a number between 2 and 64, or auto: invalid value "1"
upstream | kvroute zone=llm; kvroute_ranks all;        | refused | "kvroute_ranks" must be a number between 2 and 64, or auto: invalid value "all"
upstream | kvroute zone=llm; kvroute_ranks 65;         | refused | "kvroute_ranks" must be a number between 2 and 64
upstream | kvroute zone=llm; kvroute_ranks 2; kvroute_ranks 4; | refused | "kvroute_ranks" directive is duplicate
upstream | kvroute zone=llm; kvroute_ranks auto;       | warned  | "kvroute_ranks auto" in upstream "llm" ... needs "kvroute_probe": the metrics report how many ranks there are
upstream | kvroute zone=llm; kvroute_ranks 4;          | warned  | "kvroute_ranks" in upstream "llm" ... needs "proxy_set_header X-Data-Parallel-Rank $kvroute_rank;" in the location: else engines do not receive the rank
http     | upstream one { zone one 64k; kvroute zone=llm; server 127.0.0.1:9; kvroute_ranks 2; } upstream two { zone two 64k; kvroute zone=llm; server 127.0.0.1:9; } | warned | "kvroute_ranks" in upstream "one" ... is not in "two", which has server "127.0.0.1:9" too: its requests count as those of the first rank, give it a kvroute_zone of its own
upstream | kvroute_ranks 4;                            | warned  | "kvroute_ranks" in upstream "llm" ... does nothing without "kvroute"
upstream | kvroute_shadow zone=llm; kvroute_ranks 4;   | warned  | "kvroute_ranks" in upstream "llm" ... does nothing without "kvroute"
upstream | kvroute_probe;                              | warned  | "kvroute_probe" in upstream "llm" ... does nothing without "kvroute"
upstream | kvroute_health;                             | warned  | "kvroute_health" in upstream "llm" ... does nothing without "kvroute"
upstream | kvroute_eject fails=3;                      | warned  | "kvroute_eject" in upstream "llm" ... does nothing without "kvroute"
upstream | kvroute_shadow zone=llm; kvroute_eject fails=3; | warned  | "kvroute_eject" in upstream "llm" ... does nothing without "kvroute"
upstream | kvroute_events port=5557;                   | warned  | "kvroute_events" in upstream "llm" ... does nothing without "kvroute"
upstream | kvroute zone=llm; kvroute_events;           | refused | invalid number of arguments
upstream | kvroute zone=llm; kvroute_events replay=1;  | refused | "kvroute_events" must have "port" parameter: "port=" and a port between 1 and 65535, or "+" and an offset to the server's port
upstream | kvroute zone=llm; kvroute_events port=+x;   | refused | "port=" must be a port between 1 and 65535, or "+"
upstream | kvroute zone=llm; kvroute_events port=70000; | refused | "port=70000" must be a port between 1 and 65535, or "+"
upstream | kvroute zone=llm; kvroute_events 5557;      | refused | invalid parameter "5557": known are port=
upstream | kvroute zone=llm; kvroute_events port=Auto; | refused | "port=" must be a port between 1 and 65535, or "+" and an offset to the server's port, a range of up to 8 ports, one for each rank, or "auto"
upstream | kvroute zone=llm; kvroute_events port=5557 replay=auto; | refused | "replay=" must be a port between 1 and 65535, or "+"
upstream | kvroute zone=llm; kvroute_events port=auto replay=5558; | refused | "port=auto" finds the replay port of an engine: remove "replay="
upstream | kvroute zone=llm; kvroute_events port=auto-2; | refused | "port=" must be a port
upstream | kvroute zone=llm; kvroute_events port=5557 aliases=1k; | refused | "aliases=" must be between 64k and 1g
upstream | kvroute zone=llm; kvroute_events port=0; | refused | "port=0" must be a port between 1 and 65535
upstream | kvroute zone=llm; kvroute_events port=; | refused | "port=" must be a port
upstream | kvroute zone=llm; kvroute_events port=5557 replay=; | refused | "replay=" must be a port
upstream | kvroute zone=llm; kvroute_events port=5557 port=5558; | refused | duplicate
upstream | kvroute zone=llm; kvroute_events port=65535-65536; | refused | "port=65535-65536" must be a port
upstream | kvroute zone=llm; kvroute_events port=+65000; server 127.0.0.1:9999; | warned | its events are not read
upstream | kvroute zone=llm; kvroute_events port=5557-5560 replay=5558; | refused | "port=" and "replay=" of "kvroute_events" in upstream "llm" ... must be 4 apart with 4 ranks
upstream | kvroute zone=llm; kvroute_ranks 2; kvroute_events port=+2 replay=+1; | refused | must be 2 apart with 2 ranks
upstream | kvroute zone=llm; kvroute_events port=+1 replay=5557; server 127.0.0.1:9; server 127.0.0.1:10; | warned | has one publisher for servers "127.0.0.1:..." and "127.0.0.1:...": write "replay=+N"
location | kvroute_events port=5557; | refused | "kvroute_events" directive is not allowed here
upstream | kvroute zone=llm; kvroute_events port=5557 topics=kv; | refused | invalid parameter "topics=kv": known are
upstream | kvroute zone=llm; kvroute_events port=5557-5565; | refused | "port=5557-5565" must be a port
upstream | kvroute zone=llm; kvroute_events port=5557 replay=5557; | refused | "replay=" must be another port than "port="
upstream | kvroute zone=llm; kvroute_events port=1; kvroute_events port=2; | refused | "kvroute_events" directive is duplicate
upstream | kvroute zone=llm; kvroute_events port=5557; server 127.0.0.1:9; server 127.0.0.1:10; | warned | has one publisher for servers "127.0.0.1:..." and "127.0.0.1:...": write "port=+N"
upstream | kvroute zone=llm; kvroute_ranks 2; kvroute_events port=5557-5558; | warned | the range of ports of "kvroute_events" in upstream "llm" ... has no effect with "kvroute_ranks"
upstream | kvroute zone=llm; kvroute_events port=5557; server unix:/tmp/no; | warned | has no port for server "unix:/tmp/no": its events are not read
upstream | kvroute zone=llm; kvroute_eject fail=3;     | refused | invalid parameter "fail=3": known are fails=
upstream | kvroute zone=llm; kvroute_eject off fails=3; | refused | invalid parameter "fails=3": known are retry_budget=
upstream | kvroute zone=llm; kvroute_eject time=1s off; | refused | invalid parameter "off": known are
upstream | kvroute zone=llm; kvroute_engine ollama; | refused | unknown engine "ollama": known are vllm, sglang, trtllm, llamacpp, tgi and auto
upstream | kvroute zone=llm; kvroute_probe url=:metrics; | refused | "url=" must be [ADDRESS][:PORT][/PATH]
upstream | kvroute zone=llm; kvroute_probe uri=/metrics; | refused | invalid parameter "uri=/metrics"
upstream | kvroute zone=llm; kvroute_health path=/live; | refused | invalid parameter "path=/live"
upstream | kvroute zone=llm; kvroute_probe intervall=1s; | refused | invalid parameter "intervall=1s": known are interval=
upstream | kvroute zone=llm; kvroute_probe interval=1s timeout=5s; | warned | "timeout=" is longer than "interval="
upstream | kvroute zone=llm; kvroute_health fail=3;    | refused | invalid parameter "fail=3": known are uri= interval= timeout= fails=

location | kvroute_policy best;                        | refused | unknown policy "best": known are kv_cache
location | kvroute_policy kv_cache max_pending=256k;   | refused | "max_pending=" belongs to "kvroute" in the upstream
location | kvroute_policy kv_cache zone=llm;           | refused | "zone=" belongs to "kvroute" in the upstream
location | kvroute_policy sticky timout=1h;            | refused | invalid parameter "timout=1h": known are key= timeout=
location | kvroute_policy random two=1;                | refused | invalid parameter "two=1": policy "random" has none
location | kvroute_request priority=hihg;              | refused | "priority=" must be critical, high, ...: invalid value in parameter "priority=hihg"
location | kvroute_request priority=$http_x_class max_priority=top; | refused | "max_priority=" must be critical, high, interactive, ...: invalid value in parameter "max_priority=top"
upstream | kvroute sticky zone=llm key=http_x_session; | refused | parameter "key=http_x_session" has no variable, and would bind all clients to one server: write "key=$http_x_session"
location | kvroute_policy sticky key=cookie_sid;       | refused | parameter "key=cookie_sid" has no variable, and would bind all clients to one server: write "key=$cookie_sid"
location | kvroute_policy sticky key=x;                | refused | parameter "key=x" has no variable
location | kvroute_salt http_x_org;                    | warned  | "http_x_org" is the same text for all requests: if it is to be a variable write "$http_x_org"
location | kvroute_pin on;                             | warned  | "on" of "kvroute_pin" is a text and no switch: write a variable, or "" for none
location | kvroute_salt off;                           | warned  | "off" of "kvroute_salt" is a text and no switch
location | kvroute_pin arg_server;                     | warned  | "arg_server" is the same text for all requests
location | kvroute_request deadline=http_x_deadline;   | warned | "http_x_deadline" is the same text for all requests
location | kvroute_request tenant=cookie_org;          | warned | "cookie_org" is the same text for all requests
location | kvroute_request tenant=$http_x_org name=http_x_name; | warned | "http_x_name" is the same text for all requests
location | kvroute_request tenant=$http_x_tenant weight=much;  | refused | "weight=" must be a number, or a variable
location | kvroute_request tenant=$http_x_tenant $arg_a; | refused | invalid parameter "$arg_a": known are tenant=
location | kvroute_request weight=2;                   | refused | "weight=" and "name=" are those of a tenant: write "tenant=" too
location | kvroute_request max_priority=low;           | refused | "max_priority=" has no effect without "priority="
location | kvroute_request tenant=$arg_a; kvroute_request deadline=1s; | refused | "kvroute_request" directive is duplicate
location | kvroute_request priority=$http_x_class;     | warned  | "priority=" of "kvroute_request" in location "/" has no effect: it passes to "llm", which has no "kvroute_queue"
location | kvroute_request tenant=$http_x_tenant weight=2; | warned | "weight=" of "kvroute_request" in location "/" has no effect: it passes to "llm", which has no "kvroute_queue"
location | kvroute_continue yes;                       | refused | invalid value "yes" in "kvroute_continue": write on, off, or a number between 0 and 100
location | kvroute_continue off 2;                     | refused | is off: it takes no parameters
location | kvroute_continue 101;                       | refused | invalid value "101" in "kvroute_continue": write on, off, or a number between 0 and 100
location | kvroute_first_token 0;                      | refused | invalid value "0" in "kvroute_first_token": write a time such as 2s, or auto, or off
location | kvroute_first_token on;                     | refused | invalid value "on" in "kvroute_first_token": write a time such as 2s, or auto, or off
location | kvroute_first_token off 2%;                 | refused | is off: it takes no parameters
location | kvroute_first_token auto 2;                 | refused | invalid value "2" in "kvroute_first_token": write the share of requests that may be sent twice, between 1% and 100%
location | kvroute_first_token 2s 200%;                | refused | invalid value "200%" in "kvroute_first_token": write the share
instead  | location / { set $pool llm; kvroute_request upstream=nosuch; proxy_pass http://$pool; } | warned | "upstream=nosuch" of "kvroute_request" in location "/" names no upstream with "kvroute"
instead  | location / { uwsgi_pass llm; } | warned | "uwsgi_pass" in location "/" speaks no HTTP to the servers of "kvroute", as engines do: write "proxy_pass http://llm;"
instead  | location / { fastcgi_pass llm; }            | warned | "fastcgi_pass" in location "/" speaks no HTTP to the servers of "kvroute", as engines do: write "proxy_pass http://llm;"
instead  | location / { scgi_pass llm; }               | warned | "scgi_pass" in location "/" speaks no HTTP to the servers of "kvroute"
upstream | kvroute zone=llm; kvroute_probe; kvroute_engine ssl; | warned | "proxy_pass" in location "/" is without TLS, and "kvroute_engine ssl" probes the same servers with it: write "proxy_pass https://llm;", or remove "ssl"
upstream | kvroute zone=llm; kvroute_engine ssl; kvroute_health; kvroute_probe url=:9400/metrics; | warned | "proxy_pass" in location "/" is without TLS
location | kvroute_request tenant=$kvroute_tenant;     | warned | "tenant=$kvroute_tenant" refers to itself: write a variable of the request, such as $http_x_tenant
location | kvroute_request tenant=a${kvroute_tenant};  | warned | "tenant=a${kvroute_tenant}" refers to itself
instead  | location / { grpc_pass grpc://llm; }        | warned | "kvroute" cannot read prompts of "grpc_pass" in location "/", and routes them by load
location | proxy_request_buffering off;                | warned | "proxy_request_buffering off" in location "/" hides from "kvroute" what of a prompt arrives after the header: remove it
http     | upstream b { zone b 64k; kvroute zone=llm; server 127.0.0.1:9; server 127.0.0.1:8; } server { proxy_request_buffering off; location /b/ { proxy_set_header X-Peer $kvroute_peer; proxy_pass http://b; } } | warned | "proxy_request_buffering off" in location "/b/"
instead  | location = /kv { kvroute_status; }          | refused | "kvroute_status" needs a format (json, prometheus or html) in location "/kv"
instead  | location /kv { kvroute_status xml; }        | refused | unknown format "xml": known are json, prometheus and html
instead  | location /kv { kvroute_api write=true; }    | refused | invalid parameter "write=true": known are "write=on" and "write=off"
instead  | location /a/ { kvroute_policy sticky; proxy_pass http://127.0.0.1:8000; } | warned | "kvroute_policy" in location "/a/" has no effect: it passes to "127.0.0.1:8000", which has no "kvroute"
instead  | location / { kvroute_salt $arg_s; proxy_pass http://plain; } | warned | "kvroute_salt" in location "/" has no effect: it passes to "plain", which has no "kvroute"
instead  | location / { kvroute_budget $arg_k zone=llm rate=1k/m; proxy_pass http://plain; } | warned | "kvroute_budget" in location "/" has no effect: it passes to "plain", which has no "kvroute"
instead  | location / { kvroute_continue on; proxy_pass http://plain; } | warned | "kvroute_continue" in location "/" has no effect: it passes to "plain"
location | kvroute_continue on;                        | warned | "kvroute_continue" in location "/" is for streams, and nginx buffers them: write "proxy_buffering off;"
location | kvroute_first_token auto;                   | warned | "kvroute_first_token" in location "/" is for streams, and nginx buffers them: write "proxy_buffering off;"
location | proxy_buffering off; kvroute_first_token 60s; | warned | "kvroute_first_token" in location "/" does not act before "proxy_read_timeout" ends the request: write a time below 60000ms
location | proxy_buffering off; kvroute_first_token 10s 5%; proxy_read_timeout 9s; | warned | "kvroute_first_token" in location "/" does not act before "proxy_read_timeout" ends the request: write a time below 9000ms
instead  | location / { kvroute_first_token auto; proxy_pass http://plain; } | warned | "kvroute_first_token" in location "/" has no effect: it passes to "plain"
upstream | kvroute zone=llm; kvroute_engine ssl;       | warned | "kvroute_engine" in upstream "llm" ... does nothing without "kvroute_probe" or "kvroute_health"
instead  | location /b/ { kvroute_pin $arg_p; proxy_pass http://plain; } | warned | "kvroute_pin" in location "/b/" has no effect: it passes to "plain", which has no "kvroute"

zone     | kvroute_zone zone=llm:1 m;                  | refused | invalid parameter "m": known are zone=
zone     | kvroute_zone zone=llm:16m maxpeers=100;     | refused | invalid parameter "maxpeers=100": known are zone= max_peers=
zone     | kvroute_zone zone=llm:16m snapshot=/tmp/x;  | refused | "snapshot" needs "key_file=FILE"
zone     | kvroute_zone zone=llm:16m key_file=/etc/passwd; | refused | key_file "/etc/passwd" is open to all users, use "chmod o= /etc/passwd"
zone     | kvroute_zone zone=other:16m;                | refused | kvroute zone "llm" is unknown in upstream "llm" ...: declare "kvroute_zone zone=llm:16m;" in http
upstream | kvroute llm;                                | refused | unknown policy "llm": known are kv_cache
upstream | kvroute zone=llm:16m;                       | refused | "zone=" must be the name of a "kvroute_zone": invalid value in parameter "zone=llm:16m"
upstream | kvroute zone=llm policy=kv_cache;           | refused | invalid parameter "policy=kv_cache": known are zone=
upstream | kvroute zone=llm slow_start=30 s;           | refused | invalid parameter "s": known are zone=
upstream | kvroute zone=llm slowstart=30s;             | refused | invalid parameter "slowstart=30s": known are zone= capacity= max_pending= max_waiting= slow_start=
upstream | kvroute zone=llm max_pending=-1;            | refused | "max_pending=" must be a size such as 256k, a time such as 500ms, or auto
upstream | kvroute sticky zone=llm cookie=sid;         | refused | invalid parameter "cookie=sid": known are zone=
upstream | kvroute zone=llm; kvroute_probe on;         | refused | invalid parameter "on": known are interval=
upstream | kvroute zone=llm; kvroute_probe interval=0; | refused | "interval=" must be between 10ms and 1h
upstream | kvroute zone=llm; kvroute_health /health;   | refused | invalid parameter "/health": known are uri=
upstream | kvroute zone=llm; kvroute_engine vLLM;      | refused | unknown engine "vLLM": known are vllm, sglang
upstream | kvroute zone=llm; kvroute_engine header=secret; | refused | "header=" must be a line, as in "Authorization: Bearer KEY"
upstream | kvroute zone=llm; kvroute_queue on;         | refused | invalid parameter "on": known are max= timeout=
upstream | kvroute zone=llm; kvroute_eject on;         | refused | invalid parameter "on": known are fails=
upstream | kvroute zone=llm; kvroute_eject retry_budget=20; | refused | "retry_budget=" must be between 1% and 100%
location | kvroute_policy off on;                      | refused | invalid parameter "on": policy "off" has none
location | kvroute_request tennant=$http_x_tenant;     | refused | invalid parameter "tennant=$http_x_tenant": known are tenant=
location | kvroute_budget $http_x_key rate=100k/m;     | refused | "kvroute_budget" must have a string, such as $tenant, and "zone" and "rate" parameters
location | kvroute_budget $http_x_key zone=no rate=1k/m; | refused | kvroute zone "no" is unknown in "kvroute_budget"
location | kvroute_budget $http_x_key zone=llm rate=1k/m over=wait; | refused | "over=" must be 429, low, or a time to wait such as 30s

zone     | kvroute_zone zone=llm:1m snapshot=/tmp;     | refused | "snapshot=/tmp" is a folder: write the name of a file in it
upstream | kvroute zone=llm max_pending=500;           | refused | "max_pending=" must be a size such as 256k, a time such as 500ms, or auto
upstream | kvroute zone=llm; kvroute_probe url=127.0.0.1:9400/metrics; | warned | "kvroute_probe" in upstream "llm" ... reads the metrics of all 2 servers from one address: write "url=:PORT/PATH"
http     | upstream q { zone q 64k; kvroute zone=llm; server 127.0.0.1:9; server 127.0.0.1:8; server 127.0.0.1:9; } | warned | "kvroute" in upstream "q" in ... has server "127.0.0.1:9" twice, which is one server
http     | upstream q { zone q 64k; kvroute zone=llm; server 127.0.0.1:9; server 127.0.0.1:8 backup; } | warned | "kvroute" in upstream "q" in ... has one server to choose from
http     | upstream q { zone q 64k; kvroute zone=llm; kvroute_queue max=9; server 127.0.0.1:9 max_conns=4; server 127.0.0.1:8; } server { location / { proxy_pass http://q; } } | warned | "kvroute_queue" in upstream "q" in ... has no effect while server "127.0.0.1:8" has no cap: write "max_conns" for it too
http     | upstream q { zone q 64k; kvroute zone=llm; server 127.0.0.1:9; server 127.0.0.1:8001; } server { location / { kvroute_prefill q; proxy_pass http://llm; } } | warned | "kvroute_prefill" in upstream "q" in ... and "llm" both have server "127.0.0.1:8001"
http     | upstream q { zone q 64k; kvroute zone=llm; kvroute_health; server 127.0.0.1:443; server 127.0.0.2:443; } | warned | "kvroute_health" in upstream "q" in ... checks server "127.0.0.1:443" without TLS: write "kvroute_engine ssl;"
location | kvroute_salt $request_id;                   | warned | "$request_id" is another text for each request: write what the requests of a client have in common
location | kvroute_policy sticky key=a${request_id};   | warned | "a${request_id}" is another text for each request
location | kvroute_budget $kvroute_tenant zone=llm rate=1k/m; | warned | "kvroute_budget $kvroute_tenant" in location "/" limits nobody without "tenant=" of "kvroute_request"
instead  | location / { kvroute_status; proxy_pass http://llm; } | warned | "kvroute_status" in location "/" is beside "proxy_pass", and only the last one answers: write a location for each
instead  | location / { proxy_pass http://llm; kvroute_api; } | warned | "kvroute_api" in location "/" is beside "proxy_pass"
instead  | location /k/ { kvroute_api; kvroute_status; } | warned | "kvroute_status" in location "/k/" is beside "kvroute_api"
EOT

# valid configurations, some of which were refused once
my $good = <<'EOT';

upstream | kvroute zone=llm max_pending=250ms;
upstream | kvroute zone=llm; keepalive 8;
upstream | least_conn; kvroute_shadow zone=llm; keepalive 8;
upstream | kvroute_shadow least_request zone=llm; kvroute_probe; kvroute_health; ip_hash;
upstream | kvroute zone=llm; kvroute_probe url=:9400/metrics interval=5s timeout=5s; kvroute_health uri=/live;
upstream | kvroute zone=llm; kvroute_health interval=1s;
upstream | kvroute_events port=auto; kvroute zone=llm;
upstream | kvroute_events port=auto aliases=1m; kvroute zone=llm;
http     | upstream one { zone one 64k; kvroute zone=llm; server 127.0.0.1:9; server 127.0.0.1:99; kvroute_events port=+1; } upstream two { zone two 64k; kvroute zone=llm; server 127.0.0.1:9; server 127.0.0.1:99; kvroute_events port=+1; }
upstream | kvroute_events port=+1000-+1001 replay=+2000; kvroute zone=llm;
location | kvroute_policy sticky timeout=1h; kvroute_pin $arg_p;
instead  | location / { kvroute_policy random; set $pool llm; proxy_pass http://$pool; }
instead  | location / { kvroute_policy random; return 204; }
http     | upstream q { zone q 64k; kvroute zone=llm max_pending=1m; kvroute_queue max=9; server 127.0.0.1:9; } server { location / { set $pool q; kvroute_request upstream=$pool; proxy_pass http://$pool; } }
http     | upstream q { zone q 64k; kvroute zone=llm max_pending=1m; kvroute_queue max=9; server 127.0.0.1:9; } server { location / { kvroute_prefill q; proxy_pass http://llm; } }
instead  | location / { fastcgi_pass plain; } location /a/ { scgi_pass plain; } location /b/ { uwsgi_pass plain; } location /c/ { proxy_pass http://llm; }
upstream | kvroute zone=llm; kvroute_engine ssl; kvroute_probe url=:9400/metrics;
location | proxy_buffering off; kvroute_continue on; kvroute_first_token 59s;
location | proxy_buffering off; kvroute_first_token auto; proxy_read_timeout 1s;
location | kvroute_continue 0 usage=on;
location | kvroute_continue off; kvroute_first_token off;
http     | proxy_buffering off; proxy_read_timeout 5m; kvroute_first_token 2m; kvroute_continue on;
http     | kvroute_continue on; kvroute_first_token 2s; server { location / { proxy_buffering off; proxy_pass http://llm; } location /v1/embeddings { proxy_pass http://llm; } }
http     | upstream q { zone q 64k; kvroute zone=llm; kvroute_engine ssl; kvroute_health; server 127.0.0.1:9; server 127.0.0.1:8; } server { location / { proxy_pass https://q; if ($arg_a) { proxy_pass https://q; } } location /b { proxy_ssl_name x; proxy_pass https://q; } location /v { set $pool q; proxy_pass http://$pool; } }
location | kvroute_request tenant=$http_x_org name=$kvroute_tenant;
location | kvroute_request tenant=$http_x_org; kvroute_budget $kvroute_tenant zone=llm rate=1k/m;
location | kvroute_budget $remote_addr$kvroute_tenant zone=llm rate=1k/m;
http     | map $http_x_pool $upstream_pool { default llm; } server { location / { kvroute_request upstream=$upstream_pool; proxy_pass http://$upstream_pool; } }
http     | server { kvroute_budget $kvroute_tenant zone=llm rate=1k/m; location / { kvroute_request tenant=$http_x_org; proxy_pass http://llm; } }
http     | kvroute_policy sticky; server { listen 127.0.0.1:%%PORT%%; server_name other; location / { proxy_pass http://plain; } }
EOT

# removed directives and parameters: the message says what to write instead

{
    my $source = Kvroute::slurp("$FindBin::Bin/../ngx_http_kvroute_module/conf/"
                                . 'ngx_http_kvroute_conf_old.c');
    my %several = $source =~ /#define (\w+)\s[\s\\]*"([^"]+)"/g;
    my %before = (kvroute_zone => 'zone=llm:1m', kvroute => 'zone=llm',
                  kvroute_queue => 'max=9', kvroute_events => 'port=9',
                  kvroute_share => 'zone=llm', kvroute_prefill => 'p',
                  kvroute_continue => 'on', kvroute_budget => 'x',
                  kvroute_first_token => 'auto', kvroute_shadow => 'zone=llm', kvroute_policy => 'kv_cache');
    my %place = (kvroute_zone => 'zone', kvroute_share => 'http',
                 map { $_ => 'location' } qw(kvroute_prefill kvroute_continue
                                             kvroute_first_token kvroute_budget kvroute_policy));

    while ($source =~ /\{ "?(\w+)"?, (?:NULL|"(\S+)"),\s+"((?:\\"|[^"])+)" \}/g) {
        my ($directives, $param, $now) = ($several{$1} // $1, $2, $3);

        $now =~ s/\\"/"/g;

        for my $directive (grep { $_ ne 'kvroute_upstream' } split / /, $directives) {
            my $place = $place{$directive} // ($param ? 'upstream' : 'location');
            my $first = $place eq 'upstream' && $directive !~ /^kvroute(_shadow)?$/
                        ? 'kvroute zone=llm; ' : '';
            my $words = $param ? join ' ', $before{$directive} // (),
                                           $param . ($param =~ /=$/ ? '1' : '')
                               : '1';

            $table .= "$place | $first$directive $words; | refused | there is no "
                      . ($param ? 'parameter' : "directive \"$directive\"")
                      . " ... any more: $now\n";
        }
    }
}

# since 1.29.7 nginx keeps connections in any order of directives

$table =~ s/^upstream \| keepalive 8; kvroute .*\n//m
    if Kvroute->new()->version() ge '001029007';

my @rows = map { [ split /\s*\|\s*/, $_, 4 ] } grep { /\|/ } split /\n/, $table;
my @good = map { [ split /\s*\|\s*/ ] } grep { /\|/ } split /\n/, $good;



sub conf {
    my ($t, $place, $text) = @_;

    my %at = (zone => 'kvroute_zone zone=llm:1m;',
              upstream => 'kvroute zone=llm;', location => '', http => '');

    my $location = $place eq 'instead'
                   ? $text : 'location / { %LOCATION% proxy_pass http://llm; }';

    $at{$place} = $text;
    $location =~ s/%LOCATION%/$at{location}/;

    $t->conf(<<"END");
http {
%%TEMP%%
    access_log off;
    $at{zone}
    upstream llm {
        zone llm_peers 64k;
        $at{upstream}
        server 127.0.0.1:8001;
        server 127.0.0.1:8002;
    }
    upstream plain {
        server 127.0.0.1:8003;
    }
    server {
        listen 127.0.0.1:%%PORT%%;
        $location
    }
    $at{http}
}
END
}


# the output of nginx for each row: another process checks every second row

my @said;

for my $job (0, 1) {
    my $t = Kvroute->new();

    $t->expect_log(qr/\[emerg\]/);

    my $pid = open my $pipe, '-|';
    die "fork: $!" unless defined $pid;

    if (!$pid) {
        my @out;

        for my $row (grep { $_ % 2 == $job } 0 .. @rows + @good - 1) {
            conf($t, @{($rows[$row] || $good[$row - @rows])}[0, 1]);
            push @out, [$row, $t->check()];
        }

        print encode_json(\@out);
        close STDOUT;
        POSIX::_exit(0);
    }

    push @said, [$t, $pipe];
}

for my $job (@said) {
    my ($t, $pipe) = @$job;

    for my $answer (@{decode_json(join '', <$pipe>)}) {
        my ($row, $ok, $out) = @$answer;

        if ($row >= @rows) {
            my (undef, $text) = @{$good[$row - @rows]};
            ok($ok && $out !~ /\[warn\]/, "good: $text") or diag($out);
            next;
        }

        my (undef, $text, $verdict, $words) = @{$rows[$row]};
        my $re = join '.*', map { quotemeta } split /\s*\.\.\.\s*/, $words;
        my $level = $verdict eq 'refused' ? 'emerg' : 'warn';

        ok(!!$ok eq !!($verdict eq 'warned')
           && $out =~ /^nginx: \[$level\] .*$re/m
           && $out =~ /^nginx: \[$level\] .*(?:nginx\.conf:\d|location "|zone=)/m,
           "$verdict: $text")
            or diag("must have: $words\n$out");
    }
}

cmp_ok(scalar @rows, '>=', 100, 'the table is complete');

# the documented least size of a zone: nginx starts with it, and not with a page
# less

{
    my $t = $said[0][0];

    conf($t, zone => 'kvroute_zone zone=llm:64k;');
    my ($least) = ($t->check())[1] =~ /needs (\d+)k at least/;

    conf($t, zone => "kvroute_zone zone=llm:${least}k;");
    ok(($t->check())[0], "zone=llm:${least}k is enough");

    conf($t, zone => 'kvroute_zone zone=llm:' . ($least - 4) . 'k;');
    ok(!($t->check())[0], 'a page less is not');
}

$said[0][0]->quit();
$said[1][0]->done();
