#!/usr/bin/perl

# A worker dies inside nginx's lock of the servers with requests in flight.  A
# worker of an older configuration, with other servers and locks, notices first:
# it leaves the repair of the new lists to the dead worker's successor.  (Found
# by make chaos.)

use File::Basename qw(dirname);
use lib 't/lib';
use Kvroute;

my $t = Kvroute->new(workers => 1);
my $trap = dirname($t->{engine}) . '/die.so';

plan(skip_all => "no $trap: make engine") unless -e $trap;

$t->backend("B$_") for 0 .. 1;

$t->upstream('u', 'B0 B1 max_fails=0');

$t->conf(<<'EOF');
    location / { proxy_pass http://u; }
EOF

my $die = "$t->{dir}/die";

{
    local $ENV{LD_PRELOAD} = $trap;
    local $ENV{KVROUTE_DIE} = $die;
    local $ENV{ASAN_OPTIONS} = join ':', grep { $_ }
        $ENV{ASAN_OPTIONS}, 'verify_asan_link_order=0';

    $t->run();
}

$t->expect_log(qr/worker process \d+ exited on signal/);

sub state_is {
    my ($state, @pids) = @_;

    wait_for(sub {
        !grep { Kvroute::slurp("/proc/$_/stat") !~ /\) $state/ } @pids;
    }) or die "no process is in state $state\n";
}

# the command for the next worker that wakes up

sub trap {
    my ($what) = @_;

    Kvroute::write_file("$die.new", "$what\n");
    rename "$die.new", $die;
}

my $counted = 0;

sub hold {
    my $s = $t->start('POST /', chat(text(3000, ++$counted)),
                      headers => { map { $_ => 'wait go' } qw(X-B0 X-B1) });

    wait_for(sub { (($t->load())[3] // 0) == $counted })
        or die "it is not counted\n";

    return $s;
}

# three configurations, each with a worker that has a request

my ($first) = $t->workers();
my $of_first = hold();
my ($second) = $t->reload();
my $of_second = hold();
my ($third) = $t->reload();
my $of_third = hold();

# the newest dies in the lock, the oldest anywhere; no worker knows yet

kill 'STOP', $t->{master}, $first, $second;
state_is('T', $t->{master}, $first, $second);

trap('ngx_http_kvroute_reserve_consume');
my $fatal = $t->start('POST /', chat(text(3000, 100)));
kill 'KILL', $first;
state_is('Z', $first, $third);

# its successor stops before it does anything

trap('stop');
kill 'CONT', $t->{master};

my $next;

wait_for(sub {
    ($next) = grep { $_ != $first && $_ != $second && $_ != $third }
              $t->workers();
    return $next;
}) or die "no new worker has started\n";

state_is('T', $next);
unlink $die;

# the second one finds two dead ones

kill 'CONT', $second;

my $looked = qr/$second: kvroute_zone "z": removed the counts of (\d) dead/;

wait_for(sub { $t->log() =~ $looked }) or die "the second one does not check\n";

$t->log() =~ $looked;
is($1, 1, 'counts of an older configuration are removed');

kill 'CONT', $next;

ok(wait_for(sub {
    $t->log() =~ /"u" was released: process $third was killed while holding it/;
}), 'the successor releases the lock');

is($t->post('/', chat(text(3000, 200)))->{status}, 200, 'requests are served');

$t->step('go');
is($t->finish($of_second)->{status}, 200, 'the one in flight, too');

ok($t->idle(), 'the counters are back at zero');
is(($t->load())[2], 0, 'nginx counts none either');

close $_ for $of_first, $of_third, $fatal;

$t->done();
