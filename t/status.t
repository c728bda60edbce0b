#!/usr/bin/perl

# The status: JSON and its parts, Prometheus text, the page's location,
# redirects; all agree with the requests made.

use lib 't/lib';
use JSON::PP;
use Kvroute;

my $t = Kvroute->new();

$t->backend("B$_") for 0 .. 1;

$t->upstream('u', 'B0 max_fails=2 fail_timeout=1h', 'B1 weight=2 max_fails=0');
$t->upstream('crowded', 'kvroute kv_cache zone=few;', 'kvroute_queue max=4;',
             'kvroute_probe interval=1h;', 'kvroute_health interval=1h;',
             'B0 B1');

my $conf = <<'EOC';
http {
%%TEMP%%
    kvroute_zone zone=z:2m;
    kvroute_zone zone=few:1m max_peers=1;
    access_log off;

%%UPSTREAMS%%

    proxy_next_upstream off;

    server {
        listen 127.0.0.1:%%PORT%%;
        location / { proxy_pass http://u; }
        location /turns/ { kvroute_policy round_robin; proxy_pass http://u; }
        location /b/ { proxy_pass http://with_backup/b/; }
        location /kvroute/ { kvroute_status; }
        location /bare { kvroute_status; }
        location = /one.json { kvroute_status json; }
        location = /one.prom { kvroute_status prometheus; }
        location = /one.html { kvroute_status html; }
        location ~ ^/re/ { kvroute_status json; }
        location /part/ { kvroute_status json; }
        %%MORE%%
    }

    # "proxy_pass" before it names this upstream with a path

    upstream with_backup {
        zone wb 64k;
        kvroute least_request zone=z;
        server 127.0.0.1:%%B0%% down;
        server 127.0.0.1:%%B1%% backup;
    }
}
EOC

# wrong configurations

for my $case ([ 'location = /x { kvroute_status; }', qr/needs a format.*"\/x"/ ],
              [ 'location ~ x { kvroute_status; }', qr/needs a format/ ],
              [ 'location /x { kvroute_status xml; }', qr/unknown format "xml"/ ],
              [ 'location /x { kvroute_status; kvroute_status json; }',
                qr/is duplicate/ ])
{
    $t->{vars}{MORE} = $case->[0];
    my ($ok, $out) = $t->conf($conf)->check();
    ok(!$ok, $case->[0]);
    like($out, $case->[1], 'the message');
}

$t->{vars}{MORE} = '';
$t->expect_log(qr/\[emerg\].*(?:needs a format|unknown format|is duplicate)/);
$t->conf($conf)->run();

# --- the addresses of the formats

{
    my $r = $t->get('/kvroute');
    is($r->{status}, 301, 'a slash is missing');
    like($r->{headers}{location}, qr{/kvroute/$}, 'redirect');

    $r = $t->get('/bare');
    is($r->{status}, 301, 'a slash is missing in the location');
    like($r->{headers}{location}, qr{/bare/$}, 'redirect');

    for my $uri ('/kvroute/', '/bare/', '/one.html') {
        $r = $t->get($uri);
        is($r->{status}, 200, "page at $uri");
        is($r->{headers}{'content-type'}, 'text/html; charset=utf-8', 'type');
        like($r->{body}, qr/^<!doctype html>/i, 'page');
    }

    for my $uri ('/kvroute/json', '/kvroute/json/', '/bare/json', '/one.json',
                 '/re/x', '/part/')
    {
        $r = $t->get($uri);
        is($r->{headers}{'content-type'}, 'application/json', "JSON at $uri");
        ok(decode_json($r->{body})->{upstreams}{u}, 'whole');
    }

    for my $uri ('/kvroute/metrics', '/bare/metrics', '/one.prom') {
        $r = $t->get($uri);
        is($r->{headers}{'content-type'},
           'text/plain; version=0.0.4; charset=utf-8', "Prometheus at $uri");
        like($r->{body}, qr/^# HELP kvroute_build_info /, 'metrics');
    }

    for my $uri (qw(/kvroute/jsonp /kvroute/nope /kvroute/json/nope
                    /kvroute/json/upstreams/u/peers/2
                    /kvroute/json/upstreams/u/peers/-1
                    /kvroute/json/version/x),
                 '/kvroute/json/' . 'x' x 300)
    {
        $r = $t->get($uri);
        is($r->{status}, 404, substr($uri, 0, 40));
        is(decode_json($r->{body})->{error}{status}, 404, 'the error is in JSON');
    }

    is($t->post('/kvroute/json', '{}')->{status}, 405, 'POST is refused');

    $r = $t->request('HEAD /kvroute/json');
    is($r->{status}, 200, 'HEAD');
    ok($r->{headers}{'content-length'} > 100, 'HEAD has a length');
    is($r->{headers}{'cache-control'}, 'no-store', 'not to be cached');
}

# --- parts

{
    my $get = sub { decode_json('[' . $t->get("/kvroute/json/$_[0]")->{body}
                                . ']')->[0] };

    is($get->('version'), $t->status()->{version}, 'a string');
    is($get->('upstreams/u/policy'), 'kv_cache', 'a member of an object');
    is($get->('upstreams/u/peers/1/weight'), 2, 'by number');
    is($get->("upstreams/u/peers/127.0.0.1:$t->{vars}{B1}/weight"), 2,
       'by address');
    is($get->('/upstreams//u/policy/'), 'kv_cache', 'extra slashes');
    is(decode_json($t->get('/part/upstreams/u/peers/1')->{body})->{weight}, 2,
       'below a location of the JSON format');
    is(ref $get->('upstreams/u/peers'), 'ARRAY', 'a list');
}

# --- the figures agree with the requests

my $body = chat(text(20_000, 1));
my $n = 6;

$t->post('/', $body) for 1 .. $n;
$t->post('/', '{"no":"prompt"}') for 1 .. 2;
$t->get('/') for 1 .. 2;
$t->post('/b/', $body);

$t->post('/', chat(text(4_000, 9)), headers => {
    'X-B0' => 'status 500', 'X-B1' => 'status 500' });

ok($t->idle(), 'idle');

my $s = $t->status();
my $u = $s->{upstreams}{u};

{
    my %sum;

    for my $p (@{$u->{peers}}) {
        $sum{$_} += $p->{$_} for qw(requests prompt_bytes matched_bytes
                                    best_bytes ttft_count);
        $sum{$_} += $p->{responses}{$_} for qw(2xx 5xx total);
        $sum{"r_$_"} += $p->{decisions}{$_} for keys %{$p->{decisions}};
    }

    is($sum{requests}, $n + 5, 'requests');
    is($sum{total}, $n + 5, 'responses');
    is($sum{'5xx'}, 1, 'failed requests');
    is($sum{ttft_count}, $n + 2, 'answers to prompts have a TTFT');
    is($sum{r_bodyless}, 2, 'decisions by load, of the peers');
    is($sum{r_affinity}, $n - 1, 'decisions by affinity');

    for my $reason (grep { $u->{decisions}{$_} } keys %{$u->{decisions}}) {
        is($sum{"r_$reason"}, $u->{decisions}{$reason},
           "peers add up to the upstream: $reason");
    }

    ok($sum{matched_bytes} > 0.9 * $sum{prompt_bytes} * ($n - 1) / ($n + 1),
       'matched bytes');
    ok($sum{best_bytes} >= $sum{matched_bytes}, 'regret is not negative');

    is($u->{policies}{kv_cache}, $n + 3, 'decisions by policy');
    is($u->{policies}{off}, 2, "decisions of nginx");

    is($u->{ttft}{count}, $n + 2, 'TTFT counted');
    is($u->{ttft}{buckets}{'+Inf'}, $n + 2, 'buckets are complete');
    is($u->{decision_time}{count}, $n + 5, 'decisions are timed');
    ok($u->{decision_time}{sum} > 0, 'the time is not zero');
    is($u->{matched_share}{buckets}{'+Inf'}
       - $u->{matched_share}{buckets}{'0.9'}, $n - 1, 'matched shares');

    my @b = map { $u->{ttft}{buckets}{$_} }
            sort { ($a eq '+Inf') - ($b eq '+Inf') || $a <=> $b }
            keys %{$u->{ttft}{buckets}};
    ok(!(grep { $b[$_] < $b[$_ - 1] } 1 .. $#b), 'buckets are cumulative');

    like($s->{timestamp}, qr/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/, 'time');
    like((grep { $_->{selected} } @{$u->{peers}})[0]{selected},
         qr/^\d{4}-\d\d-\d\dT/, 'selected');

    my $b = $s->{upstreams}{with_backup}{peers};
    is($b->[0]{state}, 'down', 'a server is down');
    is($b->[1]{state}, 'up', 'the other one is up');
    ok($b->[1]{backup} && !$b->[0]{backup}, 'backup');
}

# --- receipts

{
    my @r = @{$s->{receipts}};

    is(scalar @r, $n + 6, 'receipts');
    is($r[0]{upstream}, 'u', 'the newest is first');
    is($r[1]{upstream}, 'with_backup', 'the one before is second');
    ok($r[0]{number} > $r[1]{number}, 'numbered');

    my @same = grep { $_->{prompt_bytes} > 19_000 && $_->{upstream} eq 'u' } @r;
    my %hash = map { $_->{prompt} => 1 } @same;
    is(scalar @same, $n, 'receipts of one prompt');
    is(scalar keys %hash, 1, 'all have the same hash');
    is((grep { defined $_->{ttft} } @same), $n, 'all have a TTFT');
    is($same[0]{reason}, 'affinity', 'reason of the newest');
    is($same[-1]{reason}, 'cold', 'reason of the first');
    unlike($t->get('/kvroute/json')->{body}, qr/\Q@{[ text(20, 1) ]}\E/,
           'no text of prompts');

    # more requests than the status keeps receipts

    $t->post('/', chat("short $_")) for 1 .. 150;
    ok($t->idle(), 'idle');
    @r = @{$t->status()->{receipts}};
    is(scalar @r, 64, '64 are kept');
    is($r[0]{number}, $n + 6 + 150, 'the newest is first again');
    ok(!(grep { $r[$_]{number} != $r[$_ - 1]{number} - 1 } 1 .. $#r),
       'no number is missing');
}

# --- failures

{
    my $to = { 'X-B0' => 'close', 'X-B1' => 'close' };
    my $b0 = sub { $t->peer('u', $t->{vars}{B0}) };

    for (1 .. 40) {
        last if $b0->()->{state} eq 'unavail';
        $t->post('/turns/', chat(text(3_000, 1000 + $_)), headers => $to);
    }

    is($b0->()->{state}, 'unavail', 'failures make it unavailable');
    is($b0->()->{unavail}, 1, 'once');
    is($b0->()->{fails}, 2, 'after two failures');
}

# --- Prometheus has the same figures

{
    my $text = $t->get('/kvroute/metrics')->{body};
    my (%m, %type);

    for (split /\n/, $text) {
        $type{$1} = $2 if /^# TYPE (\S+) (\S+)$/;
        $m{$1} = $2 if /^(\w+(?:\{.*\})?) (\S+)$/;
    }

    my $s = $t->status();

    for my $p (@{$s->{upstreams}{u}{peers}}) {
        my $l = qq(upstream="u",peer="$p->{name}");

        is($m{"kvroute_peer_requests_total{$l}"}, $p->{requests}, 'requests');
        is($m{"kvroute_peer_prompt_bytes_total{$l}"}, $p->{prompt_bytes},
           'prompt bytes');
        is($m{"kvroute_peer_responses_total{$l,class=\"2xx\"}"},
           $p->{responses}{'2xx'}, 'responses');
        is($m{"kvroute_peer_state{$l,state=\"$p->{state}\"}"}, 1, 'state');
        is($m{"kvroute_peer_ttft_seconds_count{$l,stream=\"false\"}"},
           $p->{ttft_count}, 'TTFT');
        is($m{"kvroute_decisions_total{$l,reason=\"$_\"}"},
           $p->{decisions}{$_}, "reason $_") for sort keys %{$p->{decisions}};
    }

    my $h = $s->{upstreams}{u}{ttft};
    my $of = 'upstream="u",stream="false"';
    is($m{"kvroute_ttft_seconds_bucket{$of,le=\"$_\"}"},
       $h->{buckets}{$_}, "bucket $_") for sort keys %{$h->{buckets}};
    is($m{"kvroute_ttft_seconds_count{$of}"}, $h->{count}, 'count');

    # a peer without a slot in the zone has only the figures of nginx

    my @crowd = grep { /upstream="crowded",peer=/ } keys %m;
    is((grep { /^kvroute_peer_active_requests\{/ } @crowd), 2, 'both peers are exported');
    is((grep { /^kvroute_peer_delivered_tokens_total\{/ } @crowd), 1,
       'one peer has counters');
    is((grep { /^kvroute_peer_engine_kv_usage_ratio\{/ } keys %m), 0,
       'no metric without a report of an engine');

    my @untyped = grep { my ($n) = /^(\w+)/; $n =~ s/_(?:bucket|sum|count)$//
                             unless $type{$n}; !$type{$n} } keys %m;
    is(join(' ', @untyped), '', 'all metrics have types');
}

# --- a reload keeps the figures; many requests at a time

{
    my $before = $t->status()->{upstreams}{u}{ttft}{count};
    $t->reload();
    is($t->status()->{upstreams}{u}{ttft}{count}, $before, 'a reload keeps the figures');

    my @s = map { $t->start('GET /kvroute/json') } 1 .. 20;
    is((grep { $t->finish($_)->{status} == 200 } @s), 20, '20 at a time');
}

$t->done();
