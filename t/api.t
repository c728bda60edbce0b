#!/usr/bin/perl

# The control API: flush, capacity and reset, by address. Errors are JSON; each
# action is logged and can be repeated. GET and requests of another site's page
# change nothing. Draining is in the policies' tests, the counters after reset
# in t/reset.t.

use lib 't/lib';
use JSON::PP;
use Kvroute;

my $t = Kvroute->new();

$t->backend("B$_") for 0 .. 1;

$t->upstream('u', 'kvroute kv_cache zone=z capacity=1m;', 'B0 B1');
$t->upstream('o', 'kvroute kv_cache zone=other;', 'B0');

my $conf = <<'EOC';
    kvroute_zone zone=z:2m;
    kvroute_zone zone=other:2m;
    add_header X-Matched $kvroute_matched_bytes;

    location / { proxy_pass http://u; }
    location /o/ { proxy_pass http://o; }
    location /api/ { kvroute_api write=on; }
    location /look/ { kvroute_api; }
    location = /exact { kvroute_api; }
    location /if/ {
        if ($arg_peer) { set $given 1; }
        kvroute_api write=on;
    }
    location = /status_if {
        if ($arg_x) { set $given 1; }
        kvroute_status json;
    }
EOC

$t->conf($conf)->run();

my $peer = "127.0.0.1:$t->{vars}{B0}";

sub api {
    my ($what, %arg) = @_;

    my $r = $t->request("POST /api/$what", '', %arg);
    $r->{json} = eval { decode_json($r->{body}) };

    return $r;
}

sub matched { return $_[0]{headers}{'x-matched'} }

# --- rejected requests

for my $case ([ 'flush', 400, 'missing "peer" argument, expected e.g. 10.0.0.1:8000' ],
              [ 'flush?peer=', 400, 'missing "peer" argument, expected e.g. 10.0.0.1:8000' ],
              [ 'reset?peer=', 400, 'missing "peer" argument, expected e.g. 10.0.0.1:8000' ],
              [ 'reset?peer', 400, 'missing "peer" argument, expected e.g. 10.0.0.1:8000' ],
              [ "reset?per=$peer", 400, 'missing "peer" argument, expected e.g. 10.0.0.1:8000' ],
              [ 'flush?peer=10.0.0.1:1', 404, 'unknown peer' ],
              [ 'reset?peer=10.0.0.1:1', 404, 'unknown peer' ],
              [ "flushed?peer=$peer", 404, 'unknown action' ],
              [ "?peer=$peer", 404, 'unknown action' ],
              [ "capacity?peer=$peer", 400, 'missing "size" argument, expected e.g. 64m or auto' ],
              [ "capacity?peer=$peer&size=0", 400, 'invalid "size" argument, expected e.g. 64m or auto' ],
              [ "capacity?peer=$peer&size=-5", 400, 'invalid "size" argument, expected e.g. 64m or auto' ],
              [ "capacity?peer=$peer&size=big", 400, 'invalid "size" argument, expected e.g. 64m or auto' ],
              [ "drain?peer=$peer&timeout=soon", 400, 'invalid "timeout" argument, expected e.g. 10m or 90s' ],
              [ "drain?peer=$peer&timeout=0", 400, 'invalid "timeout" argument, expected e.g. 10m or 90s' ],
              [ "drain?peer=$peer&timeout=", 400, 'missing "timeout" argument, expected e.g. 10m or 90s' ],
              [ "flush?peer=$peer&timeout=10m", 400, 'unexpected "timeout" argument' ],
              [ "flush?peer=$peer&size=64m", 400, 'unexpected "size" argument' ],
              [ 'drain?peer=' . 'x' x 500, 404, 'unknown peer' ])
{
    my ($what, $status, $text) = @$case;
    my $r = api($what);
    is($r->{status}, $status, substr($what, 0, 40));
    is($r->{headers}{'content-type'}, 'application/json', 'in JSON');
    is($r->{json}{error}{status}, $status, 'status');
    is($r->{json}{error}{text}, $text, 'text');
}

is($t->get('/look/')->{status}, 200, 'the read-only API');
is($t->get('/api/')->{body}, $t->get('/look/')->{body}, 'the same with write=on');
is($t->get("/exact")->{body}, $t->get('/look/')->{body}, 'a location of any name');

# only POST performs an action; other methods are rejected

for my $case ([ "PUT /api/flush?peer=$peer", 405, 'POST', 'by POST' ],
              [ "DELETE /api/reset", 405, 'POST', 'by POST' ],
              [ "GET /api/drain?peer=$peer", 405, 'POST', 'by POST' ],
              [ "GET /api/reset", 405, 'POST', 'by POST' ],
              [ "GET /api//reset", 405, 'POST', 'by POST' ],
              [ "GET /api/a/reset", 405, 'POST', 'by POST' ],
              [ "PUT /api/", 405, 'GET, HEAD', 'by POST' ],
              [ "GET /api/drained?peer=$peer", 404, undef, 'unknown action' ],
              [ "GET /look/drained", 404, undef, 'unknown action' ],
              [ "POST /look/flush?peer=$peer", 405, '', 'read-only' ],
              [ "GET /look/flush?peer=$peer", 405, '', 'read-only' ],
              [ "POST /look/", 405, 'GET, HEAD', 'read-only' ],
              [ "POST /kvroute/json", 405, 'GET, HEAD', 'read-only' ])
{
    my ($line, $status, $allow, $text) = @$case;
    my $r = $t->request($line, $line =~ /^GET/ ? undef : '');
    is($r->{status}, $status, $line);
    is($r->{headers}{allow}, $allow, 'the Allow header');
    is($r->{headers}{'content-type'}, 'application/json', 'in JSON');
    like(eval { decode_json($r->{body})->{error}{text} } // '', qr/$text/,
         'the message');
}

{
    my $head = $t->read_until($t->start("HEAD /api/drain?peer=$peer"),
                              qr/\r\n\r\n/);
    like($head, qr/^HTTP\S+ 405 .*^Allow: POST\r$/ms, 'HEAD');
}

# headers of a browser for a form, or a script, of another site's page

for my $case ([ 'cross-site' ], [ 'same-site' ], [ 'Same-Origin' ], [ '' ],
              [ 'same-origin, cross-site' ],
              [ undef, 'http://evil.example' ],
              [ undef, 'https://localhost.evil.example' ],
              [ undef, 'http://evil.example/localhost' ],
              [ undef, 'http://user@localhost' ],
              [ undef, 'null' ], [ undef, '' ], [ undef, 'localhost' ],
              [ undef, 'http://' ], [ undef, 'http://localhost/' ],
              [ undef, 'http://localhost:' ], [ undef, 'http://localhost:x' ],
              [ undef, 'http://localhost:8080' ],
              [ undef, 'http://localhost', 'localhost:443' ],
              [ undef, 'http://localhost:80', 'localhost:8080' ],
              [ undef, 'http://[::1]', '[::2]' ],
              [ undef, 'http://[::1]:81', '[::1]' ],
              [ undef, 'http://localhost http://evil.example' ],
              [ undef, 'chrome-extension://localhost' ],
              [ 'none', 'http://evil.example' ],
              [ 'same-origin', 'http://evil.example' ],
              [ 'cross-site', 'http://localhost' ])
{
    my ($site, $origin, $host) = @$case;
    my %h = ('Content-Type' => 'text/plain');
    $h{'Sec-Fetch-Site'} = $site if defined $site;
    $h{Origin} = $origin if defined $origin;

    my $r = api("flush?peer=$peer", headers => \%h, host => $host);
    my $name = join ' ', map { $_ // '-' } $site, $origin, $host;
    is($r->{status}, 403, "other site: $name");
    like($r->{json}{error}{text} // '',
         defined $site && $site !~ /^(?:none|same-origin)$/
             ? qr/"Sec-Fetch-Site"/ : qr/"Origin".*"Host"/, 'the message');
}

{
    my $r = $t->finish($t->start("POST /api/flush?peer=$peer", '',
        version => '1.0', no_host => 1, headers => { Origin => 'http://a' }));
    is($r->{status}, 403, 'an Origin, and no Host to compare it with');
}

unlike($t->log(), qr/\[notice\].*kvroute: \w+, arguments/, 'no action was performed');

for my $case ([ 'same-origin' ], [ 'none' ],
              [ 'same-origin', 'http://localhost' ],
              [ undef, 'http://localhost' ], [ undef, 'https://localhost' ],
              [ undef, 'HTTP://LOCALHOST', 'LocalHost' ],
              [ undef, 'http://localhost:80' ],
              [ undef, 'http://localhost', 'localhost:80' ],
              [ undef, 'https://localhost', 'localhost:443' ],
              [ undef, 'https://localhost:443', 'localhost' ],
              [ undef, 'http://localhost:8080', 'localhost:8080' ],
              [ undef, 'http://[::1]', '[::1]' ],
              [ undef, 'http://[::1]:8080', '[::1]:8080' ],
              [ undef, 'http://10.0.0.1', '10.0.0.1:80' ])
{
    my ($site, $origin, $host) = @$case;
    my %h;
    $h{'Sec-Fetch-Site'} = $site if defined $site;
    $h{Origin} = $origin if defined $origin;

    is(api("undrain?peer=$peer", headers => \%h, host => $host)->{status}, 200,
       join ' ', 'own page:', map { $_ // '-' } $site, $origin, $host);
}

is($t->get('/api/', headers => { Origin => 'http://evil.example' })->{status},
   200, 'reading is allowed');

# --- flush: of this peer only

{
    my %body = map { $_ => chat(text(20_000, $_)) } 1 .. 8;
    my %of;

    $of{$_} = ($t->post('/', $body{$_})->{body} =~ /^(\S+)/)[0] for 1 .. 8;

    my ($mine) = grep { $of{$_} eq 'B0' } sort keys %of;
    my ($theirs) = grep { $of{$_} eq 'B1' } sort keys %of;
    ok($mine && $theirs, 'each has a prompt');

    my $r = api("flush?peer=$peer");
    is($r->{status}, 200, 'flush');
    ok(exists $r->{json}{zones}{z}{$peer}, 'shows the peers');
    like($t->log(), qr/\[notice\].*kvroute: flush, arguments "peer=\Q$peer\E"/, 'logged');

    ok(matched($t->post('/', $body{$theirs})) > 19_000,
       'the other one keeps its cache');
    is(matched($t->post('/', $body{$mine})), 0, 'its own index is empty');
    ok(matched($t->post('/', $body{$mine})) > 19_000, 'it learns again');

    api("flush?peer=$peer") for 1 .. 3;
    is(api('flush?peer=' . ($peer =~ s/:/%3A/r))->{status}, 200,
       'a repeated flush, and an escaped address');
}

# --- capacity

{
    my $is = sub { @{$t->peer('u', $t->{vars}{B0})}{qw(capacity_bytes
                                                       capacity_source)} };

    is(($is->())[0], 1024 * 1024, 'the configured capacity');
    is(($is->())[1], 'assumed', 'source: assumed');

    for (1, 2) {
        is(api("capacity?peer=$peer&size=64k")->{status}, 200, 'set a capacity');
        is(($is->())[0], 65536, 'the capacity that was set');
        is(($is->())[1], 'api', 'source: the API');
    }

    like($t->log(), qr/\[notice\].*kvroute: capacity, arguments "peer=\Q$peer\E&size=64k"/,
         'logged');

    # it holds in each zone that has the peer

    my $zones = decode_json($t->get('/look/')->{body})->{zones};
    is($zones->{$_}{$peer}{capacity_bytes}, 65536, "zone $_") for qw(z other);

    $t->reload();
    is(($is->())[0], 65536, 'kept over a reload');

    # bytes beyond the new capacity are evicted

    $t->post('/o/', chat(text(20_000, 50)));
    $t->post('/o/', chat(text(20_000, 51 + $_))) for 1 .. 5;
    my $m = $t->peer('o', $t->{vars}{B0})->{matched_bytes};
    $t->post('/o/', chat(text(20_000, 50)));
    is($t->peer('o', $t->{vars}{B0})->{matched_bytes}, $m, 'evicted');

    is(api("capacity?peer=$peer&size=auto")->{status}, 200, 'auto');
    is(($is->())[0], 1024 * 1024, 'the configured capacity again');
    is(($is->())[1], 'assumed', 'source: assumed again');
}

# --- reset

{
    my $of = sub { $t->peer('u', $t->{vars}{$_[0]}) };

    $t->post('/', chat(text(3_000, 100 + $_))) for 1 .. 4;
    ok($t->idle(), 'idle');
    ok($of->($_)->{requests} > 0, "$_ has requests") for qw(B0 B1);

    my $s = $t->start('POST /', chat(text(3_000, 200)), headers => {
                'X-B0' => 'wait reset', 'X-B1' => 'wait reset' });
    wait_for(sub { ($t->load())[0] == 1 });

    is(api("reset?peer=$peer")->{status}, 200, 'reset');
    is($of->('B0')->{$_}, 0, "B0: $_")
        for qw(requests fails prompt_bytes matched_bytes best_bytes ttft_count);
    is($of->('B0')->{responses}{total}, 0, 'B0: responses');
    ok($of->('B1')->{requests} > 0, 'B1 keeps its counters');
    ok($t->status()->{upstreams}{u}{ttft}{count} > 0, 'so does the upstream');
    is(($t->load())[0], 1, 'the request in flight stays counted');

    is(api('reset')->{status}, 200, 'reset of all') for 1, 2;
    is($of->('B1')->{requests}, 0, 'B1');
    is($t->status()->{upstreams}{u}{ttft}{count}, 0, 'the upstream');
    is(($t->load())[0], 1, 'the request in flight stays counted');

    $t->step('reset');
    is($t->finish($s)->{status}, 200, 'the request ends');
    ok($t->idle(), 'the counters are back at zero');
}

# "if" makes a location of its own, and nginx keeps the handler there

is($t->request("POST /if/flush?peer=$peer", '')->{status}, 200,
   'write=on also works inside "if"');
is($t->request("GET /if/peers?peer=$peer", '')->{status},
   $t->request("GET /api/peers?peer=$peer", '')->{status}, 'so does the list of peers');
is(ref eval { decode_json($t->get('/status_if?x=1')->{body}) }, 'HASH',
   'so does the format of the status');

$t->done();
