#!/usr/bin/perl

# The usual behaviour of an nginx balancer, and improvements.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

$t->backend("B$_") for 0 .. 3;
$t->{vars}{DEAD} = $t->port();

$t->upstream('kv', 'B0 B1 B2 max_fails=0');
$t->upstream('plain', 'plain', 'B0 weight=5', 'B1', 'B2 weight=2');
$t->upstream('weighted', 'B0 weight=5', 'B1', 'B2 weight=2');
$t->upstream('rr', 'kvroute round_robin zone=z;', 'B0 weight=5', 'B1',
             'B2 weight=2');
$t->upstream('lr', 'kvroute least_request zone=z;', 'B0 B1 B2');
$t->upstream('downs', 'B0 down', 'B1', 'B2 B3 backup');
$t->upstream('limited', 'B0 B1 max_conns=1');
$t->upstream('failing', 'DEAD fail_timeout=1h', 'B1');
$t->upstream('kept', 'B0 B1', 'keepalive 8;');
$t->upstream('single', 'B0 max_conns=1');
$t->upstream('alone', 'B0', 'keepalive 8;');
$t->upstream('twice', 'B0 B0 max_conns=1');
$t->upstream('shared', 'B0 B3');

$t->conf(<<'EOF');
    log_format kv '$arg_n $upstream_addr $kvroute_peer $kvroute_reason '
                  '$kvroute_matched_bytes $status';
    access_log %%DIR%%/access.log kv;

    upstream unzoned {
        kvroute kv_cache zone=z;
        server 127.0.0.1:%%B0%%;
        server 127.0.0.1:%%B1%%;
    }

    proxy_next_upstream error timeout http_500 non_idempotent;
    proxy_read_timeout 30s;
    proxy_http_version 1.1;
    proxy_set_header Connection "";

    location / { proxy_pass http://kv; }
    location /once/ { proxy_next_upstream off; proxy_pass http://kv; }
    location /unzoned/ { proxy_pass http://unzoned; }
    location /lr/ { proxy_buffering off; proxy_pass http://lr; }
EOF

$t->run();

my $n = 0;

sub backend_of { return $_[0]{headers}{'x-backend'} // "status $_[0]{status}" }

sub logged {
    my ($id) = @_;
    my @f;

    wait_for(sub {
        @f = $t->access_log() =~ /^\Q$id\E (.*?) (\S+) (\S+) (\S+) (\S+)$/m;
    });

    return { addr => $f[0], peer => $f[1], reason => $f[2],
             matched => $f[3], status => $f[4] };
}

sub name_of {
    my ($port) = $_[0] =~ /(\d+)$/;
    my ($name) = grep { /^B\d$/ && $t->{vars}{$_} == $port }
                 keys %{$t->{vars}};
    return $name // 'DEAD';
}

# without a body: the same sequence as nginx's own round robin

for my $uri ('/weighted/', '/rr/') {
    my (@own, @nginx);

    for (1 .. 24) {
        push @nginx, backend_of($t->get('/plain/'));
        push @own, backend_of($t->get($uri));
    }

    is("@own", "@nginx", "$uri: no body, as nginx's round robin");
}

# round_robin with a body too: it continues at its position

{
    my @own = map { backend_of($t->post('/rr/', chat('hi'))) } 1 .. 16;
    my %count;
    $count{$_}++ for @own;
    is_deeply(\%count, { B0 => 10, B1 => 2, B2 => 4 }, 'weights of round_robin');
    is("@own[0 .. 7]", "@own[8 .. 15]", 'a smooth sequence');
}

# kv_cache: prompts stay at their server

{
    my @bodies = map { chat(text(4000, 100 + $_)) } 1 .. 12;
    my @first = map { backend_of($t->post('/', $_)) } @bodies;
    my @again = map { backend_of($t->post('/', $_)) } reverse @bodies;
    my %count;
    $count{$_}++ for @first;

    is("@again", join(' ', reverse @first), 'each prompt goes to its server again');
    is_deeply(\%count, { B0 => 4, B1 => 4, B2 => 4 }, 'new prompts are spread');
}

# growing conversations

{
    my @messages = ({ role => 'user', content => text(3000, 50) });
    my @seen;

    for my $turn (1 .. 5) {
        push @seen, backend_of($t->post("/?n=conv$turn", chat(\@messages)));
        push @messages, { role => 'assistant', content => "answer $turn" },
                        { role => 'user', content => text(500, 50 + $turn) };
    }

    is("@seen", join(' ', ($seen[0]) x 5), 'a conversation stays');
    cmp_ok(logged('conv5')->{matched}, '>=', 4300, 'and its prefix matches');
}

# least_request: ties rotate, busy ones are avoided

{
    my %count;
    $count{backend_of($t->post('/lr/', chat('x')))}++ for 1 .. 9;
    is_deeply(\%count, { B0 => 3, B1 => 3, B2 => 3 }, 'ties take turns');

    my @open = map { $t->start('POST /lr/', chat('x'), headers =>
                     { 'X-B0' => 'wait go1', 'X-B1' => 'wait go1',
                       'X-B2' => 'wait go2' }) } 1 .. 3;

    wait_for(sub { ($t->load())[0] == 3 });
    $t->step('go2');
    wait_for(sub { ($t->load())[0] == 2 });
    %count = ();

    for (1 .. 5) {
        $count{backend_of($t->post('/lr/', chat('x')))}++;

        # the worker stops counting it only after the client has all of it

        wait_for(sub { ($t->load())[0] == 2 });
    }

    is_deeply(\%count, { B2 => 5 }, 'the least busy one is chosen');

    $t->step('go1');
    $t->finish($_) for @open;
    ok($t->idle(), 'none in flight');
}

# a retry goes to another peer, and a failed attempt is undone in the index

{
    my $body = chat(text(5000, 200));
    my $home = backend_of($t->post('/?n=f1', $body));
    my $r = $t->post('/?n=f2', $body, headers => { "X-$home" => 'status 500' });
    is($r->{status}, 200, 'retried after 500');
    isnt(backend_of($r), $home, 'on another peer');

    my $l = logged('f2');
    is($l->{reason}, 'retry', 'reason: retry');
    is($l->{peer}, (split ', ', $l->{addr})[1], 'the last peer is logged');

    $body = chat(text(5000, 201));
    $r = $t->post('/once/?n=f3', $body,
                  headers => { map { ("X-B$_" => 'status 500') } 0 .. 2 });
    is($r->{status}, 500, 'an error is passed on');
    $t->post('/once/?n=f4', $body);
    is(logged('f4')->{matched}, 0, 'a 500 is not learned');
    is(logged('f4')->{reason}, 'cold', 'cold after a 500');

    $body = chat(text(5000, 202));
    $t->post('/once/?n=f5', $body,
             headers => { map { ("X-B$_" => 'close') } 0 .. 2 });
    is(logged('f5')->{status}, 502, 'no answer');
    $t->post('/once/?n=f6', $body);
    is(logged('f6')->{matched}, 0, 'a closed connection is not learned');

    # a known prompt stays in the index

    $body = chat(text(5000, 203));
    my $warm = backend_of($t->post('/once/?n=f7', $body));
    $t->post('/once/?n=f8', $body, headers => { "X-$warm" => 'status 400' });
    is(logged('f8')->{status}, 400, 'refused');
    is(backend_of($t->post('/once/?n=f9', $body)), $warm, 'still known');
    cmp_ok(logged('f9')->{matched}, '>', 4500, 'and matches');
}

# a request whose client leaves before the first event is not learned

{
    my $body = chat(text(5000, 210));
    my $s = $t->start('POST /?n=a1', $body,
                      headers => { map { ("X-B$_" => 'stall') } 0 .. 2 });

    wait_for(sub { ($t->load())[0] == 1 });
    my (undef, $pending) = $t->load();
    cmp_ok($pending, '>', 4900, 'its prompt is pending');

    close $s;
    ok($t->idle(), 'gone');
    $t->post('/?n=a2', $body);
    is(logged('a2')->{matched}, 0, 'an aborted request is not learned');
}

# pending ends at the first event, not at the header or at pings

{
    my $body = chat(text(6000, 220));
    my $s = $t->start('POST /lr/?n=s1', $body, headers => {
        'X-Step' => 'event', map { ("X-B$_" => 'stream 2') } 0 .. 2 });

    ok($t->read_until($s, qr/: ping/), 'the head and a ping have arrived');
    is_deeply([ ($t->load())[0, 1] ], [ 1, length $body ], 'still pending');

    $t->step('event1');
    ok($t->read_until($s, qr/data: event 1/), 'first event');
    is_deeply([ ($t->load())[0, 1] ], [ 1, 0 ], 'active, no more pending');

    $t->step('event2');
    $t->finish($s);
    ok($t->idle(), 'done');
}

# down, backup

{
    my %count;
    $count{backend_of($t->post('/downs/', chat(text(3000, 300 + $_))))}++
        for 1 .. 5;
    $count{backend_of($t->get('/downs/'))}++ for 1 .. 5;
    is_deeply(\%count, { B1 => 10 }, 'a server that is down is not used');

    my $body = chat(text(4000, 310));
    my $r = $t->post('/downs/?n=b1', $body, headers => { 'X-B1' => 'close' });
    my $home = backend_of($r);
    like($home, qr/B[23]/, 'a backup server replaces it');

    # B1 is marked failed: prompts stay on backups too

    my @seen = map { backend_of($t->post('/downs/', $body)) } 1 .. 4;
    is("@seen", join(' ', ($home) x 4), 'affinity among backups');

    like(backend_of($t->get('/downs/')), qr/B[23]/, 'a backup without a body');

    my ($p) = grep { $_->{name} =~ /:$t->{vars}{B0}$/ }
              @{$t->status()->{upstreams}{downs}{peers}};
    is($p->{state}, 'down', 'status: down');
}

# max_conns, with and without a body

for my $case ([ 'POST', chat('x') ], [ 'GET', undef ]) {
    my ($method, $body) = @$case;
    my $go = "max$method";
    my %h = map { ("X-B$_" => "wait $go") } 0, 1;

    my @open = map { $t->start("$method /limited/", $body, headers => \%h) }
               1, 2;

    wait_for(sub { ($t->load())[0] == 2 });

    is($t->request("$method /limited/", $body)->{status}, 502,
       "$method: all servers at max_conns");

    $t->step($go);
    is($t->finish($_)->{status}, 200, "$method: served") for @open;
    ok($t->idle(), "$method: none in flight");
    is($t->request("$method /limited/", $body)->{status}, 200,
       "$method: room again");
}

# failures

{
    my %count;
    my @addr;

    for my $i (1 .. 6) {
        $count{backend_of($t->post("/failing/?n=x$i", chat("$i")))}++;
        push @addr, logged("x$i")->{addr};
    }

    is_deeply(\%count, { B1 => 6 }, 'no request fails for a dead server');
    is(scalar(grep { /$t->{vars}{DEAD}/ } @addr), 1,
       'and is tried once in fail_timeout');

    my $p = $t->peer('failing', $t->{vars}{DEAD});
    is($p->{fails}, 1, 'status: fails');
    is($p->{state}, 'unavail', 'status: unavail');
}

# a stale kept connection does not count as a failure of the peer

{
    my $body = chat(text(5000, 400));
    my $r = $t->post('/kept/?n=k1', $body,
                     headers => { 'X-B0' => 'stale', 'X-B1' => 'stale' });
    my $home = backend_of($r);
    my $fails = $t->peer('kept', $t->{vars}{$home})->{fails};

    $r = $t->post('/kept/?n=k2', $body);
    my $l = logged('k2');

    is(name_of((split ', ', $l->{addr})[0]), $home, 'to the warm peer');
    like($l->{addr}, qr/, /, 'over a stale connection');
    is(backend_of($r), $home, 'the warm peer serves it anyway');
    is($t->peer('kept', $t->{vars}{$home})->{fails}, $fails,
       'the peer has not failed');
    is($r->{body} =~ /(\d+)$/ && $1, 1, 'on a new connection');
}

# a single server

{
    my $s = $t->start('POST /single/?n=o1', chat(text(3000, 500)),
                      headers => { 'X-B0' => 'wait single' });
    wait_for(sub { ($t->load())[0] == 1 });
    is($t->post('/single/', chat('x'))->{status}, 502, 'single: max_conns');
    $t->step('single');
    is($t->finish($s)->{status}, 200, 'single: served');
    is(logged('o1')->{reason}, 'only', 'single: no choice');
    is(logged('o1')->{matched}, '-', 'single: nothing was parsed');
}

# a single server is tried as long as its kept connections are stale

{
    my @s = map { $t->start('POST /alone/', chat('x'),
                            headers => { 'X-B0' => 'wait alone stale' }) }
            1 .. 4;
    wait_for(sub { ($t->load())[0] == 4 });
    $t->step('alone');
    is($t->finish($_)->{status}, 200, 'single: kept') for @s;

    my $r = $t->post('/alone/?n=o2', chat('x'));
    is($r->{status}, 200, 'single: served over its stale connections');
}

# a server that is listed twice has twice the connections

{
    my $conns = sub { $t->peer('twice', $t->{vars}{B0})->{active} };
    my @s;

    for my $i (1 .. 2) {
        push @s, $t->start('POST /twice/', chat('x'),
                           headers => { 'X-B0' => 'wait twice' });
        wait_for(sub { $conns->() == $i });
    }

    is($conns->(), 2, 'listed twice: both are in use');
    is($t->post('/twice/', chat('x'))->{status}, 502, 'listed twice: full');
    $t->step('twice');
    is($t->finish($_)->{status}, 200, 'listed twice: served') for @s;
}

# the same server in two upstreams is one peer

{
    my $body = chat(text(5000, 600));
    my $s = $t->start('POST /single/', $body,
                      headers => { 'X-B0' => 'wait shared' });
    wait_for(sub { ($t->load())[0] == 1 });

    my $status = $t->status();
    my $p = $t->peer('shared', $t->{vars}{B0}, $status);
    is($p->{active}, 0, 'not active in this upstream');
    is($p->{active_all}, 1, 'but in the other one');
    is($p->{id}, $t->peer('single', $t->{vars}{B0}, $status)->{id},
       'the same peer');

    is(backend_of($t->post('/shared/', chat(text(5000, 601)))), 'B3',
       'its load counts for decisions');

    $t->step('shared');
    $t->finish($s);

    # a prompt learned in one upstream is known in the other

    my $long = chat(text(8000, 602));
    $t->post('/unzoned/', $long) for 1 .. 2;
    my $home = backend_of($t->post('/unzoned/?n=z1', $long));
    $t->post('/?n=z2', $long);
    is(name_of(logged('z2')->{peer}), $home, 'affinity over upstreams');
}

ok($t->idle(), 'the counters are back at zero');
is(($t->load())[2], 0, 'nginx counts no request either');

$t->done();
