#!/usr/bin/perl

# Counters are exact: clients that leave, killed workers, reloads, forced
# shutdowns.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new(workers => $ENV{KVROUTE_WORKERS} || 2);

$t->backend("B$_") for 0 .. 1;

$t->upstream('u', 'B0 B1 max_fails=0');
$t->upstream('limited', 'B0 B1 max_conns=1');

my $conf = <<'EOF';
worker_shutdown_timeout %%SHUTDOWN%%;
    kvroute_zone zone=z:2m;

%%UPSTREAMS%%

    proxy_buffering off;

    location / { proxy_pass http://u; }
    location /limited/ { proxy_pass http://limited; }
EOF

$t->{vars}{SHUTDOWN} = '1h';
$t->conf($conf);
$t->run();

my $body = chat(text(20_000, 1));

sub both { my ($do) = @_; return { 'X-B0' => $do, 'X-B1' => $do } }

sub active { return ($t->load())[0] }

# starts n requests that hang before their response, when of those before no
# more are left than are held

sub hanging {
    my ($n, $uri, $do, $held) = @_;

    $held //= 0;
    wait_for(sub { active() == $held }) or fail("more than $held active");

    my @s = map { $t->start("POST $uri", $body, headers => both($do)) } 1 .. $n;

    wait_for(sub { active() == $held + $n })
        or fail('only ' . active() . ' active');

    return @s;
}

# clients that go: before the response, after its head, in its body

{
    my @s = hanging(4, '/', 'stall');
    is(($t->load())[2], 4, 'nginx counts them too');
    close $_ for @s;
    ok($t->idle(), 'gone before the response');

    @s = map { $t->start('POST /', $body, headers => both('headers')) } 1 .. 4;
    ok($t->read_until($_, qr/\r\n\r\n/), 'head') for @s;
    is(active(), 4, 'active with the head sent');

    # peers of several upstreams are counted in each

    ok(($t->load())[3] >= 4, 'without an answer');
    close $_ for @s;
    ok($t->idle(), 'gone after the head');

    @s = map { $t->start('POST /', $body, headers => {
             %{both('stream 9')}, 'X-Step' => 'c' }) } 1 .. 4;
    $t->step('c1');
    ok($t->read_until($_, qr/event 1/), 'event') for @s;
    is_deeply([ ($t->load())[0, 1, 3] ], [ 4, 0, 0 ],
              'prefilled and active');
    close $_ for @s;
    $t->step("c$_") for 2 .. 9;
    ok($t->idle(), 'gone in the body');

    @s = map { $t->start('POST /', $body, headers => {
             %{both('packed 1')}, 'X-Step' => 'p' }) } 1 .. 4;
    ok($t->read_until($_, qr/packed/), 'packed') for @s;
    is_deeply([ ($t->load())[0, 1] ], [ 4, 0 ],
              'prefilled, if what came is compressed');
    $t->step('p1');
    $t->finish($_) for @s;
    ok($t->idle(), 'compressed events');

    @s = map { $t->start('POST /', $body, headers => both('cut')) } 1 .. 4;
    $t->finish($_) for @s;
    ok($t->idle(), 'cut by the server');

    @s = map { $t->start('POST /', $body, headers => both('reset')) } 1 .. 4;
    is($t->finish($_)->{status}, 502, 'reset') for @s;
    ok($t->idle(), 'reset by the server');

    # a body that never comes whole is not counted at all
    my $s = $t->start('POST /', substr($body, 0, 1000),
                      length => length $body);
    close $s;
    ok($t->idle(), 'gone within the request');
}

# get() that fails after init(): all servers are full

{
    my @s = hanging(2, '/limited/', 'stall');
    is($t->post('/limited/', $body)->{status}, 502, 'full');
    is($t->get('/limited/')->{status}, 502, 'full without a body');
    is(active(), 2, 'those refused are not counted');
    close $_ for @s;
    ok($t->idle(), 'none left');
}

# workers killed under load: both of them, so that max_conns is used up twice

for my $round (1 .. 2) {
    my @s = hanging(2, '/limited/', 'stall');

    $t->kill_worker($_) for $t->active_workers();
    close $_ for @s;

    wait_for(sub { $t->active_workers() == $t->{workers} });
    ok($t->idle(), "round $round: killed workers' requests are taken back");

    is(($t->load())[2], 0, "round $round: in nginx's own count as well");
    is($t->post('/limited/', $body)->{status}, 200, "round $round: room");
    is($t->get('/limited/')->{status}, 200,
       "round $round: room without a body");
}

# a worker that is killed while another goes on

{
    my @s = hanging(8, '/', 'wait go');
    my ($victim) = $t->active_workers();
    $t->kill_worker($victim);

    # those of the others stay counted, and are served

    my $left;

    wait_for(sub {
        $left = grep { IO::Select->new($_)->can_read(0) } @s;
        return active() == 8 - $left;
    });

    is(active(), 8 - $left, "$left of 8 gone with their worker");

    $t->step('go');
    my $ok = grep { $t->finish($_)->{status} == 200 } @s;
    is($ok, 8 - $left, 'the others are served');
    ok($t->idle(), 'all done');
}

# a reload: old workers go on, are counted, and may be killed

{
    my @s = hanging(4, '/', 'wait old');
    my @old = $t->active_workers();

    $t->reload();
    is(active(), 4, 'requests of old workers are counted by new ones');

    my @young = hanging(3, '/', 'wait young', 4);
    is(active(), 7, 'old and new together');

    # the exiting ones have no successors: others take their rows

    $t->kill_worker($_) for grep { -d "/proc/$_" } @old;
    ok(wait_for(sub { active() == 3 }), 'an exiting worker was killed');
    close $_ for @s;

    $t->step('young');
    is($t->finish($_)->{status}, 200, 'new ones are served') for @young;
    ok($t->idle(), 'none left');
}

# a worker that has run out of files can ask nobody who is alive

{
    my @s = hanging(8, '/', 'wait files');
    my @pids = $t->active_workers();
    my $taken = () = $t->log() =~ /of \d+ dead processes/g;

    system 'prlimit', '--pid', $_, '--nofile=1:8192' for @pids;

    # nothing is to happen: it takes two rounds of the sweep to see that

    select(undef, undef, undef, 2.2);

    system 'prlimit', '--pid', $_, '--nofile=8192:8192' for @pids;

    is(active(), 8, 'out of files: all are counted');
    is(() = $t->log() =~ /of \d+ dead processes/g, $taken, 'out of files: no row taken');

    $t->step('files');
    is($t->finish($_)->{status}, 200, 'out of files: served') for @s;
    ok($t->idle(), 'out of files: none left');
}

# forced shutdown: the pool may go before the peer is freed

{
    $t->{vars}{SHUTDOWN} = '1ms';
    $t->conf($conf);
    $t->reload();

    my @s = hanging(4, '/', 'stall');
    push @s, map { $t->start('POST /', $body, headers => {
             %{both('stream 9')}, 'X-Step' => 'f' }) } 1 .. 2;
    wait_for(sub { active() == 6 });

    $t->reload();
    ok($t->idle(), 'requests cut off by worker_shutdown_timeout');
    ok(wait_for(sub { $t->workers() == $t->{workers} }), 'old workers exit');
    close $_ for @s;
    $t->step("f$_") for 1 .. 9;

    # a worker told to exit at once

    @s = hanging(4, '/', 'stall');
    my ($pid) = $t->active_workers();
    kill 'TERM', $_ for $t->active_workers();
    wait_for(sub { !grep { $_ == $pid } $t->workers() });
    wait_for(sub { $t->active_workers() == $t->{workers} });
    ok($t->idle(), 'requests of workers that were terminated');
    close $_ for @s;
}

is(($t->load())[2], 0, "nothing is left in nginx's count");

$t->done();
