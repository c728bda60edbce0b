#!/usr/bin/perl

# nginx resolves hundreds of servers at run time.  The test replaces a fifth of
# them several times while clients send requests.
#
#     default             five replacements, each as soon as nginx has seen the
#                         one before
#     KVROUTE_CHURN=10    replaces a fifth each minute, for ten minutes (make
#                         churn); the figures are written to KVROUTE_JSON=FILE

use lib 't/lib';
use Kvroute;
use Kvroute::Dns;
use POSIX ();
use Time::HiRes qw(sleep time);

my $t = Kvroute->new(workers => 2);

plan(skip_all => 'names are resolved at run time since nginx 1.27.3')
    if $t->version() lt '001027003';

my $minutes = $ENV{KVROUTE_CHURN} || 0;
my $changes = 5;
my $clients = 3;

# several names: one DNS answer has no room for all addresses

my @names = qw(a b c);
my $servers = 300;
my $share = $servers / 5;

# one backend that answers on all these addresses

$t->{vars}{PORT_OF} = $t->backend('M', addr => '0.0.0.0');
$t->{vars}{DNS} = Kvroute::Dns::serve($t);
$t->{vars}{ENGINES} = join "\n        ",
    map { "server $_.test:$t->{vars}{PORT_OF} resolve max_fails=0;" } @names;

my $last = 0;
my @now = map { address() } 1 .. $servers;

sub address {
    my $n = $last++ % 60_000;

    return join '.', 127, 1 + int($n / 250), 1 + $n % 250, 1;
}

# replaces the oldest n addresses by new ones

sub replace {
    my ($n) = @_;

    splice @now, 0, $n;
    push @now, map { address() } 1 .. $n;
    publish();
}

sub publish {
    my %of;

    push @{$of{$names[$_ % @names]}}, $now[$_] for 0 .. $#now;
    Kvroute::Dns::records($t, $_, @{$of{$_}}) for @names;
}

publish();

$t->upstream('u', 'zone u 2m;', 'kvroute kv_cache zone=z;', '%%ENGINES%%');

$t->conf(<<'EOC')->run();
    kvroute_zone zone=z:16m max_peers=512;

    resolver 127.0.0.1:%%DNS%% valid=1s ipv6=off;
    resolver_timeout 5s;

    location / {
        proxy_next_upstream error timeout non_idempotent;
        proxy_pass http://u;
    }
EOC

sub peers {
    my $status = $t->status() or return;

    return @{$status->{upstreams}{u}{peers}};
}

# returns whether nginx has exactly the current servers, each with a slot

my ($twice, $none) = (0, 0);

sub seen {
    my @peers = peers();
    my $names = join ' ', sort map { $_->{name} =~ s/:.*//r } @peers;
    my %id;

    return 0 if $names ne join ' ', sort @now;

    $id{$_->{id}}++ for grep { defined $_->{id} } @peers;

    $twice += grep { $_ > 1 } values %id;
    $none = grep { !defined $_->{id} } @peers;

    return $none == 0;
}

# returns the private memory of the workers, KB

sub memory {
    my $kb = 0;

    for my $pid ($t->workers()) {
        my ($n) = Kvroute::slurp("/proc/$pid/status") =~ /^RssAnon:\s+(\d+)/m;
        $kb += $n // 0;
    }

    return $kb;
}

ok(wait_for(\&seen), "$servers servers, each has a slot");

my @pids;

for my $n (1 .. $clients) {
    my $pid = fork() // die "fork: $!";

    if ($pid == 0) {
        my (%status, $i);

        until (-e "$t->{dir}/enough") {
            my $r = $t->post('/', chat(text(4_000, $n * 1000 + ++$i % 40)));
            $status{$r->{status}}++;

            # a run of minutes must leave CPU time to other processes

            sleep 0.02 if $minutes;
        }

        Kvroute::write_file("$t->{dir}/load.$n",
                            join ' ', map { "$_:$status{$_}" } keys %status);
        POSIX::_exit(0);
    }

    push @pids, $pid;
}

my ($early, $changed) = (0, 0);
my @memory;

if ($minutes) {
    my $from = time;
    my $end = $from + 60 * $minutes;

    # by the clock: a slow look at the status does not slow the replacements

    for (my $said = 0; time < $end; sleep 3) {
        my $due = int($share * (time - $from) / 60) + $servers - $last;

        replace($due) if $due > 0;
        wait_for(\&seen);
        $early ||= memory() if time - $from > 15 * $minutes;

        if (time > $said + 60) {
            $said = time;
            push @memory, memory();
            diag(sprintf '%d s: %d servers so far, %d KB, %d without a slot',
                 $said - $from, $last, $memory[-1], $none);
        }
    }

} else {
    for my $i (1 .. $changes) {
        replace($share);
        $changed += !!wait_for(\&seen);
        $early = memory() if $i == 2;
    }

    is($changed, $changes, 'nginx saw each change, and each server has a slot');
}

my $late = memory();

$t->step('enough');
waitpid $_, 0 for @pids;

my ($served, $failed) = (0, 0);

for my $n (1 .. $clients) {
    my $load = Kvroute::slurp("$t->{dir}/load.$n");

    like($load, qr/^200:\d+$/, "client $n: all requests were served");
    $served += $1 if $load =~ /\b200:(\d+)/;
    $failed += $1 while $load =~ /\b(?!200:)\d+:(\d+)/g;
}

is($twice, 0, 'no two servers have the same slot');
ok($t->idle(), 'no request is left in the counters');

# a worker that gets its first requests after the first look allocates buffers

ok($late < 1.1 * $early + 1024 * $t->{workers},
   "memory is flat: $early KB, then $late KB");

my $zone = $t->status()->{zones}{z};

ok($zone->{peers} <= 512 && $zone->{peers} >= $servers,
   "$zone->{peers} slots are in use");

diag("$served requests, $last servers in all, no slot twice, RSS $early to $late KB")
    if $minutes;

Kvroute::write_file($ENV{KVROUTE_JSON}, JSON::PP->new->canonical->pretty->encode({
    minutes => 0 + $minutes, servers => $servers, servers_ever => $last,
    requests => $served + $failed, failed => $failed, slots_twice => $twice,
    slots_in_use => $zone->{peers}, memory_kb => [@memory, $late],
    nginx => $t->version() })) if $ENV{KVROUTE_JSON};

$t->done();
