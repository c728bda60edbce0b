#!/usr/bin/perl

# Counters are exact: with clients that leave, killed workers, reloads, forced
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

# starts n requests that hang before their response, once only $held earlier
# ones are left

sub hanging {
    my ($n, $uri, $do, $held) = @_;

    $held //= 0;
    wait_for(sub { active() == $held }) or fail("more than $held active");

    my @s = map { $t->start("POST $uri", $body, headers => both($do)) } 1 .. $n;

    wait_for(sub { active() == $held + $n })
        or fail('only ' . active() . ' active');

    return @s;
}

# clients that leave: before the response, after its head, within its body

{
    my @s = hanging(4, '/', 'stall');
    is(($t->load())[2], 4, 'nginx counts them too');
    close $_ for @s;
    ok($t->idle(), 'clients left before the response');

    @s = map { $t->start('POST /', $body, headers => both('headers')) } 1 .. 4;
    ok($t->read_until($_, qr/\r\n\r\n/), 'head') for @s;
    is(active(), 4, 'active with the head sent');

    # a peer in several upstreams is counted in each

    ok(($t->load())[3] >= 4, 'without an answer');
    close $_ for @s;
    ok($t->idle(), 'clients left after the head');

    @s = map { $t->start('POST /', $body, headers => {
             %{both('stream 9')}, 'X-Step' => 'c' }) } 1 .. 4;
    $t->step('c1');
    ok($t->read_until($_, qr/event 1/), 'event') for @s;
    is_deeply([ ($t->load())[0, 1, 3] ], [ 4, 0, 0 ],
              'prefilled and active');
    close $_ for @s;
    $t->step("c$_") for 2 .. 9;
    ok($t->idle(), 'clients left within the body');

    @s = map { $t->start('POST /', $body, headers => {
             %{both('packed 1')}, 'X-Step' => 'p' }) } 1 .. 4;
    ok($t->read_until($_, qr/packed/), 'packed') for @s;
    is_deeply([ ($t->load())[0, 1] ], [ 4, 0 ],
              'prefilled, if the response is compressed');
    $t->step('p1');
    $t->finish($_) for @s;
    ok($t->idle(), 'compressed events');

    @s = map { $t->start('POST /', $body, headers => both('cut')) } 1 .. 4;
    $t->finish($_) for @s;
    ok($t->idle(), 'cut by the server');

    @s = map { $t->start('POST /', $body, headers => both('reset')) } 1 .. 4;
    is($t->finish($_)->{status}, 502, 'reset') for @s;
    ok($t->idle(), 'reset by the server');

    # a request whose body never arrives completely is not counted
    my $s = $t->start('POST /', substr($body, 0, 1000),
                      length => length $body);
    close $s;
    ok($t->idle(), 'clients left within the request');
}

# get() that fails after init(): all servers are full

{
    my @s = hanging(2, '/limited/', 'stall');
    is($t->post('/limited/', $body)->{status}, 502, 'full');
    is($t->get('/limited/')->{status}, 502, 'full without a body');
    is(active(), 2, 'rejected requests are not counted');
    close $_ for @s;
    ok($t->idle(), 'none left');
}

# workers are killed under load: max_conns is used up twice

for my $round (1 .. 2) {
    my @s = hanging(2, '/limited/', 'stall');

    $t->kill_worker($_) for $t->active_workers();
    close $_ for @s;

    wait_for(sub { $t->active_workers() == $t->{workers} });
    ok($t->idle(), "round $round: killed workers' requests are no longer counted");

    is(($t->load())[2], 0, "round $round: in nginx's own count as well");
    is($t->post('/limited/', $body)->{status}, 200, "round $round: room");
    is($t->get('/limited/')->{status}, 200,
       "round $round: room without a body");
}

# a worker is killed while another one continues

{
    my @s = hanging(8, '/', 'wait go');
    my ($victim) = $t->active_workers();
    $t->kill_worker($victim);

    # requests of the other one stay counted, and are served

    my $left;

    wait_for(sub {
        $left = grep { IO::Select->new($_)->can_read(0) } @s;
        return active() == 8 - $left;
    });

    is(active(), 8 - $left, "$left of 8 ended with their worker");

    $t->step('go');
    my $ok = grep { $t->finish($_)->{status} == 200 } @s;
    is($ok, 8 - $left, 'the others are served');
    ok($t->idle(), 'all done');
}

# a reload: old workers continue, are counted, and can be killed

{
    my @s = hanging(4, '/', 'wait old');
    my @old = $t->active_workers();

    $t->reload();
    is(active(), 4, 'requests of old workers are counted by new ones');

    my @young = hanging(3, '/', 'wait young', 4);
    is(active(), 7, 'old and new together');

    # exiting workers are not replaced: others sweep their rows

    $t->kill_worker($_) for grep { -d "/proc/$_" } @old;
    ok(wait_for(sub { active() == 3 }), 'an exiting worker was killed');
    close $_ for @s;

    $t->step('young');
    is($t->finish($_)->{status}, 200, 'new ones are served') for @young;
    ok($t->idle(), 'none left');
}

# a worker without free descriptors cannot check which processes are alive

{
    my @s = hanging(8, '/', 'wait files');
    my @pids = $t->active_workers();
    my $taken = () = $t->log() =~ /of \d+ dead processes/g;

    system 'prlimit', '--pid', $_, '--nofile=1:8192' for @pids;

    # nothing may happen: wait for two rounds of the sweep

    select(undef, undef, undef, 2.2);

    system 'prlimit', '--pid', $_, '--nofile=8192:8192' for @pids;

    is(active(), 8, 'out of files: all are counted');
    is(() = $t->log() =~ /of \d+ dead processes/g, $taken, 'out of files: no row taken');

    $t->step('files');
    is($t->finish($_)->{status}, 200, 'out of files: served') for @s;
    ok($t->idle(), 'out of files: none left');
}

# forced shutdown: the pool can be freed before the peer

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

    # a worker that must exit at once

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
