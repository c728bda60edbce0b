#!/usr/bin/perl

# Configuration errors name the wrong word, file and line; warnings name the
# directive without effect, and the remedy.

use FindBin;
use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

sub try_conf {
    my ($http, $upstream, $location) = @_;

    $t->conf(<<"EOF");
$http
    upstream u {
        zone u 64k;
        server 127.0.0.1:8081;
        server 127.0.0.1:8082;
$upstream
    }

    location / { @{[ $location || '' ]} proxy_pass http://u; }
EOF
    return $t->check();
}

sub good {
    my ($name, @conf) = @_;
    my ($ok, $out) = try_conf(@conf);
    ok($ok, $name) or diag($out);
}

sub bad {
    my ($name, $re, @conf) = @_;
    my ($ok, $out) = try_conf(@conf);
    ok(!$ok, "$name: refused");
    like($out, $re, "$name: says why");
}

my $zone = 'kvroute_zone zone=z:1m;';

good('plain', $zone, 'kvroute kv_cache zone=z;');
good('default policy', $zone, 'kvroute zone=z;');
good('alias', $zone, 'kvroute least_conn zone=z;');
good('all of it', 'kvroute_zone zone=z:2m max_peers=8; kvroute_salt $arg_tenant;',
     'kvroute round_robin zone=z capacity=4m;', 'kvroute_salt x;');
good('capacity that holds', $zone, 'kvroute zone=z capacity=4m!;');
good('capacity of tiers', $zone, 'kvroute zone=z capacity=4m!+64m+1g;');
good('with keepalive after', $zone, 'kvroute zone=z; keepalive 4;');
good('several zones', 'kvroute_zone zone=a:1m; kvroute_zone zone=z:1m;',
     'kvroute zone=z;');

my $at = qr{in /nginx.conf:\d+};

bad('no zone parameter', qr/"kvroute" must have "zone" parameter.* $at/,
    $zone, 'kvroute kv_cache;');
bad('unknown zone', qr/kvroute zone "nope" is unknown in upstream "u" $at: declare "kvroute_zone zone=nope:16m;"/,
    $zone, 'kvroute zone=nope;');
bad('unknown policy', qr/unknown policy "kv_cash": known are kv_cache .* $at/,
    $zone, 'kvroute kv_cash zone=z;');
bad('off is no policy of an upstream', qr/policy "off" is for locations $at/,
    $zone, 'kvroute off zone=z;');
bad('unknown parameter', qr/invalid parameter "speed=9".* $at/,
    $zone, 'kvroute kv_cache zone=z speed=9;');
bad('second policy', qr/invalid parameter "round_robin".* $at/,
    $zone, 'kvroute kv_cache round_robin zone=z;');
bad('duplicate', qr/"kvroute" directive is duplicate $at/,
    $zone, 'kvroute zone=z; kvroute zone=z;');
bad('capacity', qr/invalid value in parameter "capacity=lots" $at/,
    $zone, 'kvroute zone=z capacity=lots;');
bad('capacity', qr/invalid value in parameter "capacity=4m!!" $at/,
    $zone, 'kvroute zone=z capacity=4m!!;');
bad('capacity', qr/"capacity=" must be a size such as 64m, .*or 64m!.*"capacity=!" $at/,
    $zone, 'kvroute zone=z capacity=!;');
bad('capacity of a fourth tier', qr/invalid value in parameter "capacity=1m\+1m\+1m\+1m" $at/,
    $zone, 'kvroute zone=z capacity=1m+1m+1m+1m;');
bad('capacity of nothing', qr/invalid value in parameter "capacity=0" $at/,
    $zone, 'kvroute zone=z capacity=0;');

bad('zone without size', qr/invalid zone size "zone=z".* $at/,
    'kvroute_zone zone=z;', 'kvroute zone=z;');
bad('zone without name', qr/invalid zone size "zone=:1m".* $at/,
    'kvroute_zone zone=:1m;', 'kvroute zone=z;');
bad('zone of no size', qr/invalid zone size "zone=z:big".* $at/,
    'kvroute_zone zone=z:big;', 'kvroute zone=z;');
bad('small zone', qr/zone "zone=z:64k" is too small, it needs \d+k at least $at/,
    'kvroute_zone zone=z:64k;', 'kvroute zone=z;');

# the table of docs/setup.md, within the size of a field more or less; more than
# four workers need no more

sub least {
    my ($peers) = @_;

    local $t->{workers} = 4;

    my ($k) = (try_conf("kvroute_zone zone=z:64k max_peers=$peers;",
                        'kvroute zone=z;'))[1] =~ /needs (\d+)k at least/;

    return $k;
}

my ($said, $wrong) = (0, '');

for (split /\n/, Kvroute::slurp("$FindBin::Bin/../docs/setup.md")) {
    my ($peers, $k) = /^\| `max_peers=(\d+)` \| (\d+)k \|/ or next;
    my $least = least($peers);

    $said++;
    $wrong .= "$peers peers: ${least}k " if abs($least - $k) > 24;
}

is("$said $wrong", '3 ', 'nginx -t reports the sizes of docs/setup.md');

bad('zone twice', qr/duplicate kvroute_zone "z" $at/,
    'kvroute_zone zone=z:1m; kvroute_zone zone=z:1m;', 'kvroute zone=z;');
bad('zone of another kind', qr/"z" is already declared for a different use/,
    'limit_req_zone $uri zone=z:1m rate=1r/s; kvroute_zone zone=z:1m;',
    'kvroute zone=z;');
bad('no zone', qr/"kvroute_zone" must have "zone" parameter.* $at/,
    'kvroute_zone max_peers=8;', 'kvroute zone=z;');
bad('peers', qr/value of parameter "max_peers=513" must be between 1 and 512/,
    'kvroute_zone zone=z:1m max_peers=513;', 'kvroute zone=z;');

# duplicate parameters: only one of the two would count

for my $twice ('zone=y:1m', 'max_peers=8') {
    my ($name) = $twice =~ /^(\w+=)/;
    my %first = ('zone=' => '', 'max_peers=' => 'max_peers=9');

    bad("zone: $name twice", qr/duplicate parameter "\Q$twice\E" $at/,
        "kvroute_zone zone=z:1m $first{$name} $twice;", 'kvroute zone=z;');
}

for my $case ([ 'kv_cache', 'capacity=1m', 'capacity=2m' ],
              [ 'kv_cache', 'max_pending=64k', 'max_pending=auto' ],
              [ 'kv_cache', 'slow_start=1s', 'slow_start=1s' ],
              [ 'kv_cache', '', 'zone=y' ],
              [ 'sticky', 'key=auto', 'key=$uri' ])
{
    my ($policy, $first, $again) = @$case;

    bad("kvroute: $again again", qr/duplicate parameter "\Q$again\E" $at/,
        $zone, "kvroute $policy zone=z $first $again;");
}

bad('kvroute_policy: key again', qr/duplicate parameter "key=\$uri" $at/,
    $zone, 'kvroute zone=z;', 'kvroute_policy sticky key=auto key=$uri;');
bad('kvroute_queue: max again', qr/duplicate parameter "max=5" $at/,
    $zone, 'kvroute zone=z max_pending=1m; kvroute_queue max=4 max=5;');
bad('kvroute_engine: ssl again', qr/duplicate parameter "ssl" $at/,
    $zone, 'kvroute zone=z; kvroute_engine ssl ssl;');
bad('kvroute_health: uri again', qr/duplicate parameter "uri=\/b" $at/,
    $zone, 'kvroute zone=z; kvroute_health uri=/a uri=/b;');
bad('kvroute_api again', qr/"kvroute_api" directive is duplicate $at/,
    $zone, 'kvroute zone=z;', 'kvroute_api write=on; kvroute_api;');
good('words with a common start', $zone,
     'kvroute kv_cache zone=z max_pending=4k max_waiting=4; kvroute_probe;');

{
    local $t->{workers} = 512;
    good('rows for many workers leave a small zone its index', $zone,
         'kvroute zone=z;');
}

bad('unknown zone parameter', qr/invalid parameter "colour=red".* $at/,
    'kvroute_zone zone=z:1m colour=red;', 'kvroute zone=z;');

# policies and their parameters, in upstreams and locations

my $up = 'kvroute zone=z;';

for my $good ('kv_cache', 'least_request', 'least_conn', 'random',
              'round_robin', 'sticky', 'sticky key=auto timeout=10m',
              'sticky key=$cookie_sid$arg_x')
{
    good("upstream: $good", $zone, "kvroute $good zone=z;");
    good("location: $good", $zone, $up, "kvroute_policy $good;");
}

good('location: off', $zone, $up, 'kvroute_policy off;');
good('inherited', "$zone kvroute_policy random;", $up);
good('in if', $zone, $up,
     'if ($arg_x) { kvroute_policy sticky; proxy_pass http://u; }');
good('caps', $zone, 'kvroute kv_cache max_pending=256k slow_start=30s zone=z;');
good('pin', $zone, $up, 'kvroute_pin $http_x_peer;');
good('API', $zone, $up, 'kvroute_api write=on; } location /x {');
good('API read-only', $zone, $up, 'kvroute_api; } location /x {');

for my $case ([ 'kv_cache timeout=1h', 'timeout=1h',
                'is not one of policy "kv_cache"' ],
              [ 'random key=x', 'key=x', 'is not one of policy "random"' ],
              [ 'least_request key=auto', 'key=auto',
                'is not one of policy "least_request"' ],
              [ 'sticky key=', 'key=', '' ],
              [ 'sticky timeout=0', 'timeout=0', '' ],
              [ 'sticky timeout=soon', 'timeout=soon', '' ])
{
    my ($policy, $word, $why) = @$case;
    bad("location: $policy", qr/parameter "\Q$word\E".*$why.* $at/,
        $zone, $up, "kvroute_policy $policy;");
    bad("upstream: $policy", qr/parameter "\Q$word\E".*$why.* $at/,
        $zone, "kvroute $policy zone=z;");
}

bad('location: unknown policy', qr/unknown policy "best": known are kv_cache .* $at/,
    $zone, $up, 'kvroute_policy best;');
bad('location: caps', qr/invalid parameter "max_pending=1k".* $at/,
    $zone, $up, 'kvroute_policy kv_cache max_pending=1k;');
bad('location: zone', qr/invalid parameter "zone=z".* $at/,
    $zone, $up, 'kvroute_policy kv_cache zone=z;');
bad('location: twice', qr/"kvroute_policy" directive is duplicate $at/,
    $zone, $up, 'kvroute_policy random; kvroute_policy random;');
bad('session of an unknown variable', qr/unknown "no_such" variable/,
    $zone, $up, 'kvroute_policy sticky key=$no_such;');
bad('API', qr/invalid parameter "write=yes".* $at/,
    $zone, $up, 'kvroute_api write=yes;');
bad('max_pending', qr/invalid value in parameter "max_pending=0" $at/,
    $zone, 'kvroute kv_cache zone=z max_pending=0;');
bad('slow_start', qr/invalid value in parameter "slow_start=slow" $at/,
    $zone, 'kvroute kv_cache zone=z slow_start=slow;');

bad('wrong context', qr/"kvroute" directive is not allowed here $at/,
    "$zone kvroute zone=z;", 'kvroute zone=z;');
bad('salt of an unknown variable', qr/unknown "no_such" variable/,
    "$zone kvroute_salt \$no_such;", 'kvroute zone=z;');

# warnings

for my $directive ('kvroute_probe', 'kvroute_health uri=/x') {
    my ($ok, $out) = try_conf('', "$directive;");
    my ($name) = $directive =~ /^(\w+)/;
    ok($ok, "$name alone");
    like($out, qr/\[warn\].*"$name" in upstream "u" $at does nothing without/,
         'a warning');

    ($ok, $out) = try_conf($zone, "$directive; kvroute zone=z;");
    unlike($out, qr/warn/, 'no warning with kvroute, before or after');
}


# the order of directives: "kvroute" replaces a method before it, and a method
# after it must not replace "kvroute"

my $new = $t->version() ge '001029007';

for my $method ('least_conn', 'ip_hash', 'hash $request_uri',
                'hash $request_uri consistent', 'random', 'random two')
{
    my ($name) = $method =~ /^(\w+)/;

    my ($ok, $out) = try_conf($zone, "$method; kvroute zone=z;");
    ok($ok, "$method before: accepted");
    like($out, qr/\[warn\].*load balancing method redefined: "kvroute" takes the place of the one before it, remove that one $at/,
         "$method before: a warning");

    for my $between ('', 'keepalive 4;') {
        bad("$method after", qr/"kvroute" in upstream "u" $at is replaced by a load balancing method after it: remove that one .*"keepalive" may come after "kvroute"/,
            $zone, "kvroute zone=z; $between $method;");
    }

    ($ok, $out) = try_conf($zone, "kvroute zone=z; } upstream o { zone o 64k;"
                                  . "server 127.0.0.1:8083; $method;");
    ok($ok, "$method of another upstream");
    unlike($out, qr/\[warn\]/, 'is its own');
}

{
    my ($ok, $out) = try_conf($zone, 'keepalive 4; kvroute zone=z;');
    ok($ok, 'keepalive before: accepted');

    if ($new) {
        unlike($out, qr/\[warn\]/, 'keepalive before: connections are kept');

    } else {
        like($out, qr/\[warn\].*"keepalive" before "kvroute" has no effect: write it after "kvroute" $at/,
             'keepalive before: a warning');
        unlike($out, qr/redefined/, 'no other warning');
    }

    for my $good ('keepalive_timeout 4s; kvroute zone=z; keepalive 4;',
                  'kvroute zone=z; keepalive_requests 9; keepalive 4;')
    {
        ($ok, $out) = try_conf($zone, $good);
        ok($ok, $good);
        unlike($out, qr/\[warn\]/, 'no warning');
    }
}

SKIP: {
    skip 'nginx has "sticky" since 1.29.6', 3 if $t->version() lt '001029006';

    my ($ok, $out) = try_conf($zone, 'sticky cookie s; kvroute zone=z;');
    like($out, qr/\[warn\].*"sticky" before "kvroute" has no effect: write it after "kvroute" $at/,
         'sticky before: a warning');

    ($ok, $out) = try_conf($zone, 'kvroute zone=z; sticky cookie s;');
    ok($ok, 'sticky after');
    unlike($out, qr/\[warn\]/, 'no warning');
}

for my $workers (1, 2) {
    $t->{workers} = $workers;
    local $ENV{KVROUTE_LOG} = 'error';
    $t->conf(<<"EOF");
http {
%%TEMP%%
    access_log off;
    $zone
    upstream u { kvroute zone=z; server 127.0.0.1:8081; server 127.0.0.1:8082; }
}
EOF
    my ($ok, $out) = $t->check();
    ok($ok, "no zone of the upstream, $workers workers: accepted");

    if ($workers > 1) {
        like($out, qr/upstream "u" $at has "kvroute" but no "zone"/,
             'no zone of the upstream: a warning');
    } else {
        unlike($out, qr/warn/, 'one worker needs no zone');
    }
}

# the queue

my $kv = 'kvroute zone=z;';

for my $c ([ 'no max', '', qr/"kvroute_queue" must have "max" parameter.* $at/ ],
           [ 'max', 'max=0', qr/"max=0"/ ],
           [ 'timeout', 'max=1 timeout=0', qr/between 1ms and 24h: invalid value in parameter "timeout=0" $at/ ],
           [ 'unknown', 'max=1 speed=9', qr/invalid parameter "speed=9".* $at/ ])
{
    bad("queue: $c->[0]", $c->[2], $zone,
        "$kv kvroute_queue " . ($c->[1] || 'timeout=1s') . ';');
}

bad('queue: duplicate', qr/"kvroute_queue" directive is duplicate $at/, $zone,
    "$kv kvroute_queue max=1; kvroute_queue max=2;");
bad('queue: before kvroute', qr/must come after "kvroute"/, $zone,
    "kvroute_queue max=1; $kv");
bad('request: unknown', qr/invalid parameter "min=1".* $at/, $zone, $kv,
    'kvroute_request priority=$arg_p min=1;');
bad('max_waiting', qr/"max_waiting=x"/, $zone, 'kvroute zone=z max_waiting=x;');

for my $c ([ "$kv kvroute_queue max=1;", qr/"kvroute_queue" in upstream "u" $at has no effect without a cap/ ],
           [ 'kvroute zone=z max_waiting=4;', qr/"max_waiting" in upstream "u" $at needs "kvroute_probe"/ ])
{
    my ($ok, $out) = try_conf($zone, $c->[0]);
    ok($ok, 'queue: accepted');
    like($out, $c->[1], 'queue: a warning');
}

{
    my ($ok, $out) = try_conf($zone, 'kvroute zone=z max_pending=auto;'
                              . 'kvroute_queue max=1;');
    unlike($out, qr/has no effect without a cap/, 'queue: no warning');
}

$t->expect_log(qr/\[emerg\]/);
$t->done();
