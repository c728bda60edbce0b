#!/usr/bin/perl

# Health: a loading peer is "starting"; an unhealthy one is avoided, and warmed
# up when it returns; an overloaded one is avoided but not failed; if all are
# down they are tried anyway.

use lib 't/lib';
use Kvroute;
use IO::Socket::UNIX;
use Socket qw(pack_sockaddr_un);

my $t = Kvroute->new();
my $dir = $t->{dir};

my @e = $t->engines(3, '--hardware', 'none', '--model', 'm');
my @over = $t->engines(2, '--model', 'm', '--max-num-seqs', 1,
                       '--max-num-queued-reqs', 1);

# a proxy without its engine

$t->serve('P', sub {
    my ($c) = @_;
    my $data = '';

    while (defined Kvroute::Servers::backend_read($c, \$data)) {
        syswrite($c, "HTTP/1.1 503 X\r\nContent-Type: text/html; charset=x\r\n"
                     . "Content-Length: 6\r\n\r\n<html>");
    }
});

# a server that is too busy with a stream to answer checks

my $busy = $t->serve('B', sub {
    my ($c) = @_;
    my $data = '';

    while (defined(my $head = Kvroute::Servers::backend_read($c, \$data))) {

        if ($head =~ m{^GET /health}) {
            select undef, undef, undef, 0.02 while -e "$dir/busy";
            syswrite($c, "HTTP/1.1 200 X\r\nContent-Length: 0\r\n\r\n");
            next;
        }

        syswrite($c, "HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\n"
                     . "\r\n");

        while (! -e "$dir/enough") {
            syswrite($c, qq(data: {"choices":[{"delta":{"content":"w"}}]}\n\n))
                or return;
            select undef, undef, undef, 0.02;
        }

        return;
    }
});

$t->upstream('h', 'kvroute least_request zone=z slow_start=1s;',
             'E0 E1 E2 max_fails=1 fail_timeout=60s',
             'kvroute_health uri=/health interval=50ms fails=2 timeout=1h;');
$t->upstream('both', 'kvroute least_request zone=y;', 'E2',
             'kvroute_health uri=/health interval=50ms fails=2 timeout=1h;',
             'kvroute_probe interval=50ms timeout=1h;');
$t->upstream('spare', 'kvroute least_request zone=y;', 'E0',
             'server unix:%%DIR%%/closed backup max_fails=1 fail_timeout=1h;');
$t->upstream('full', 'kvroute least_request zone=y;',
             'server unix:%%DIR%%/full;',
             'kvroute_health uri=/health interval=50ms fails=1000 timeout=1h;');
$t->upstream('busy', 'kvroute least_request zone=y;', 'B',
             'kvroute_health uri=/health interval=200ms fails=4 timeout=500ms;');
$t->upstream('over', 'kvroute kv_cache zone=x;', 'E3 E4');
$t->upstream('proxy', 'kvroute kv_cache zone=x;', 'P', 'E3 backup');

$t->conf(<<'EOF');
    kvroute_zone zone=z:2m;
    kvroute_zone zone=y:2m;
    kvroute_zone zone=x:2m;
    log_format kv '$upstream_addr $status $kvroute_reason';
    access_log %%DIR%%/access.log kv;

    location /over/ {
        proxy_pass http://over/;
        proxy_buffering off;
        proxy_next_upstream error timeout http_503 non_idempotent;
    }
    location /proxy/ {
        proxy_pass http://proxy/;
        proxy_next_upstream error timeout http_503 non_idempotent;
    }
    location /busy/ { proxy_pass http://busy/; proxy_buffering off; }
    location /spare/ {
        proxy_pass http://spare/;
        proxy_next_upstream error timeout http_429 non_idempotent;
    }
    location /v1/ {
        proxy_pass http://h;
        proxy_next_upstream error timeout http_503 http_429
                            non_idempotent;
    }
EOF

# its queue of connections is full

my $full = IO::Socket::UNIX->new(Local => "$dir/full", Listen => 1) or die $!;
my @queue;

do {
    push @queue, IO::Socket::UNIX->new(Type => SOCK_STREAM);
    $queue[-1]->blocking(0);
} while (connect($queue[-1], pack_sockaddr_un("$dir/full")));

$t->run();

sub state { return $t->peer('h', $_[0])->{health}; }

sub becomes {
    my ($port, $state, $name) = @_;

    ok(wait_for(sub { state($port) eq $state }), "$name: $state")
        or diag(state($port));
}

# read from another engine, because this one can be down

sub control {
    my ($port, $what) = @_;
    my ($i) = grep { $e[$_] == $port } 0 .. 2;
    my $r = $what ? $t->post("/control?replica=$i",
                             JSON::PP->new->encode($what),
                             port => $e[($i + 1) % 3])
                  : $t->get("/control?replica=$i",
                            port => $e[($i + ($i == 2)) % 3]);

    return JSON::PP::decode_json($r->{body});
}

# sends requests; counts how many each engine got

sub spread {
    my ($n) = @_;
    my @before = map { control($_)->{generate_requests} } @e;
    my $bad = 0;

    for (1 .. $n) {
        my $r = $t->post('/v1/chat/completions', chat(text(200, $_)));
        $bad++ if $r->{status} != 200;
    }

    my @after = map { control($_)->{generate_requests} } @e;

    return ($bad, map { $after[$_] - $before[$_] } 0 .. 2);
}

becomes($_, 'up', "engine $_") for @e;

my ($bad, @n) = spread(30);
is("$bad @n", '0 10 10 10', 'all have their share');

# a failing check

$t->control($e[0], { health_status => 500 });
becomes($e[0], 'down', 'a sick engine');
is($t->peer('h', $e[0])->{state}, 'unhealthy', 'its state');
like($t->get('/kvroute/metrics')->{body},
     qr/^kvroute_peer_health\{upstream="h",peer="127.0.0.1:$e[0]",health="down"\} 1$/m,
     'and for Prometheus');
($bad, @n) = spread(10);
is("$bad $n[0]", '0 0', 'gets no requests');

$t->control($e[0], { health_status => 200 });
becomes($e[0], 'up', 'a recovered engine');
ok(wait_for(sub { ($bad, @n) = spread(6); $n[0] }), 'gets requests again');

# any 2xx is healthy

$t->control($e[0], { health_status => 400 });
becomes($e[0], 'down', '400 is unhealthy');
$t->control($e[0], { health_status => 204 });
becomes($e[0], 'up', '204 is healthy');

$t->control($e[0], { health_status => 200 });
becomes($e[0], 'up', 'a recovered engine');

# loading: at once, without counted failures

$t->control($e[1], { loading_s => 3600 });
becomes($e[1], 'starting', 'an engine that loads its model');
($bad, @n) = spread(10);
is("$bad $n[1]", '0 0', 'gets no requests meanwhile');
$t->control($e[1], { loading_s => 0 });
becomes($e[1], 'up', 'an engine that has loaded');

# an engine ends, and returns

sub both { return $t->peer('both', $e[2]); }

ok(wait_for(sub { (both()->{engine}{probes} // 0) > 2 }), 'both probes and checks run');

my $early = IO::Socket::INET->new(PeerAddr => "127.0.0.1:$e[2]") or die $!;
control($e[2]);
control($e[2], { down => JSON::PP::true });
print $early "GET /health HTTP/1.0\r\n\r\n";
is(scalar <$early>, undef, 'an engine that has ended answers nothing');
becomes($e[2], 'down', 'an engine that has ended');
($bad, @n) = spread(10);
is($bad, 0, 'no request fails');
my $flushed = $t->peer('h', $e[2])->{cache}{flushes_probe};
control($e[2], { down => JSON::PP::false });
becomes($e[2], 'up', 'an engine that has returned');
is($t->peer('h', $e[2])->{cache}{flushes_probe}, $flushed + 1,
   'has an empty cache');

# probes and checks have seen the restart, more than once: it counts once

ok(wait_for(sub { both()->{cache}{flushes_probe} }), 'seen by probes and checks');
my $asked = both()->{engine}{probes} - both()->{engine}{failed};
ok(wait_for(sub { both()->{engine}{probes} - both()->{engine}{failed}
                  > $asked + 5 && both()->{health} eq 'up' }), 'probes continue');
is(both()->{cache}{flushes_probe}, 1, 'one restart counts once');

# a connection that fails is not always refused: a full queue is no restart

{
    my $peer = sub { return $t->peer('full', "$dir/full"); };

    ok(wait_for(sub { $t->log() =~ /of localhost has never worked: unreachable/
                }), 'a full queue');

    my $pid = fork() // die $!;

    close $_ for @queue;

    if ($pid == 0) {
        while (my $c = $full->accept()) {
            sysread($c, my $data, 4096)
                and syswrite($c, "HTTP/1.1 200 X\r\nContent-Length: 0\r\n\r\n");
        }
        POSIX::_exit(0);
    }

    push @{$t->{children}}, $pid;

    ok(wait_for(sub { my $h = $peer->()->{health_checks};
                      $h->{checks} > $h->{fails} + 2 }), 'is read');
    is($peer->()->{cache}{flushes_probe} // 0, 0, 'the cache is not lost');
}

# all down: tried anyway

$t->control($_, { health_status => 503 }) for @e;
becomes($_, 'down', "engine $_") for @e;
($bad, @n) = spread(9);
is($bad, 0, 'all down: requests are served anyway');
$t->control($_, { health_status => 200 }) for @e;
becomes($_, 'up', "engine $_") for @e;

# a 4xx can be retried elsewhere, but is not a failure

sub clients { return $t->peer('h', $_[0])->{responses}{'4xx'}; }

my $fails = $t->peer('h', $e[0])->{fails};
my $before = clients($e[0]);
$t->control($e[0], { fault => 'status=429', fault_rate => 1,
                     fault_count => 1 });
ok(wait_for(sub { $t->post('/v1/chat/completions', chat('x'));
                  clients($e[0]) > $before }), 'a 429');
is($t->peer('h', $e[0])->{fails}, $fails, '429 is no failure');
is($t->peer('h', $e[0])->{state}, 'up', 'the engine is in use');

# overload: avoided for a while, not failed; again if the machine took longer
# than that

$fails = $t->peer('h', $e[0])->{fails};

my $state;

ok(wait_for(sub {
    wait_for(sub { !$t->peer('h', $e[0])->{pressed} });
    $t->control($e[0], { fault => 'status=503', fault_rate => 1,
                         fault_count => 1, retry_after => 4 });
    wait_for(sub { $t->post('/v1/chat/completions', chat('x'));
                   $t->peer('h', $e[0])->{pressed} }, 4) or return;
    $state = $t->peer('h', $e[0])->{state};
    ($bad, @n) = spread(6);
    return $t->peer('h', $e[0])->{pressed};
}), '503 with Retry-After is overload');
is($state, 'up', 'not a failure');
is($t->peer('h', $e[0])->{fails}, $fails, 'no failure');
is("$bad $n[0]", '0 0', 'it is avoided');
ok(wait_for(sub { ($bad, @n) = spread(3); $n[0] }), 'and used again later');

# an overloaded engine without Retry-After: no failure either, and no outage if
# all of them are overloaded

{
    my $peer = sub { return $t->peer('over', $_[0]) };
    my @s = map { $t->start('POST /over/v1/chat/completions',
                            chat("busy $_", stream => JSON::PP::true,
                                 max_tokens => 100_000)) } 0 .. 1;

    like($t->read_until($_, qr/data: /), qr/ 200 /, 'a stream') for @s;

    is($t->get('/health', port => $_)->{status}, 200, 'healthy') for @over;
    is($t->post('/over/v1/chat/completions', chat('x'))->{status}, 503,
       'all are overloaded') for 1 .. 4;

    like($t->get('/metrics', port => $_)->{body},
         qr/^vllm:admission_rejections_total\{.*\} [1-9]/m,
         'the engine rejects') for @over;

    for my $port (@over) {
        my $p;

        # the mark lasts a second, which can pass on a busy machine

        wait_for(sub {
            my $s = $t->start('POST /over/v1/chat/completions', chat('x'));

            wait_for(sub { $p = $peer->($port); $p->{pressed} }, 2);
            $t->finish($s);
            return $p->{pressed};
        });
        is("$p->{fails} $p->{state} $p->{pressed}", '0 up 1', 'overloaded');
    }

    close $_ for @s;
    ok(wait_for(sub { $t->post('/over/v1/chat/completions',
                               chat('x', max_tokens => 1))->{status} == 200 }),
       'and serve again later');
}

# a 503 that is not the engine's is a failure

is($t->post('/proxy/v1/chat/completions', chat('x', max_tokens => 1))
   ->{status}, 200, 'another server serves');
is(join(' ', @{$t->peer('proxy', $t->{vars}{P})}{qw(fails state)}),
   '1 unavail', "a proxy's 503");

# a 503 of an unhealthy engine is a failure, too

$t->control($e[0], { health_status => 500 });
becomes($e[0], 'down', 'a sick engine');
control($e[1], { health_status => 500 });
control($e[2], { health_status => 500 });
becomes($_, 'down', 'like the others') for @e[1, 2];
$fails = $t->peer('h', $e[0])->{fails};
$t->control($e[0], { fault => 'status=503', fault_rate => 1,
                     fault_count => 1, retry_after => -1 });
ok(wait_for(sub { $t->post('/v1/chat/completions', chat('x'));
                  $t->peer('h', $e[0])->{fails} > $fails }),
   'its 503 is a failure');
control($_, { health_status => 200 }) for @e;
becomes($_, 'up', "engine $_") for @e;

# a refused connection is not mistaken for another server's answer

{
    my $path = "$dir/closed";
    my $s = IO::Socket::UNIX->new(Local => $path, Listen => 1) or die $!;
    close $s;

    $t->control($e[0], { fault => 'status=429', fault_rate => 1,
                         fault_count => 1, retry_after => 60 });
    is($t->post('/spare/v1/chat/completions', chat('x'))->{status}, 502,
       'the backup server refuses');

    my $p = $t->peer('spare', $path);

    is($p->{fails}, 1, 'a failure');
    is($p->{responses}{'4xx'}, 0, 'and not a response');
    is($p->{state}, 'unavail', 'it is marked failed');
    ok(!$p->{pressed}, 'it is not marked overloaded');

    $p = $t->peer('spare', $e[0]);
    is($p->{fails}, 0, 'the other one has no failure');
    ok($p->{pressed}, 'and is marked overloaded');
}

# timed-out checks do not mark an engine unhealthy that is serving clients, even
# if its answers are not parsed

{
    my $state = sub { return $t->peer('busy', $busy)->{health}; };
    my $failed = sub {
        return $t->peer('busy', $busy)->{health_checks}{fails};
    };

    ok(wait_for(sub { $state->() eq 'up' }), 'healthy and idle');

    my $s = IO::Socket::INET->new(PeerAddr => "127.0.0.1:$t->{vars}{PORT}")
        or die $!;
    my $body = chat('x');

    print $s "POST /busy/v1/chat/completions HTTP/1.0\r\nContent-Length: "
             . length($body) . "\r\n\r\n$body";
    like(scalar <$s>, qr/ 200 /, 'a stream');

    open my $f, '>', "$dir/busy" or die $!;

    my $before = $failed->();

    ok(wait_for(sub { $failed->() > $before + 5 }), 'checks time out');
    is($state->(), 'up', 'healthy while it serves a client');

    open $f, '>', "$dir/enough" or die $!;

    ok(wait_for(sub { $state->() eq 'down' }), 'unhealthy afterwards');
}

$t->done();
