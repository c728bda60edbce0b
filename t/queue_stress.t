#!/usr/bin/perl

# Many waiting requests in two workers, while clients leave, nginx reloads and
# workers are killed: each request is answered once, except those whose client
# or worker has ended; none reaches the peer twice; all counters end at zero.
# STRESS_SEED, STRESS_PARKED.

use lib 't/lib';
use Kvroute;

my $seed = $ENV{STRESS_SEED} || 1;
my $parked = $ENV{STRESS_PARKED} || 80;

my $t = Kvroute->new(workers => $ENV{KVROUTE_WORKERS}
                                && $ENV{KVROUTE_WORKERS} > 1
                                ? $ENV{KVROUTE_WORKERS} : 2);

$t->backend('B0');
$t->backend('B1');

$t->upstream('u', 'kvroute kv_cache zone=z max_pending=16k;',
             'kvroute_queue max=2000 timeout=1h;',
             'B0 max_conns=3 max_fails=0', 'B1 max_conns=2 max_fails=0');

$t->conf(<<'EOC');
    kvroute_request priority=$http_x_class tenant=$http_x_tenant
                    weight=$http_x_weight;

    location / { proxy_pass http://u; }
EOC

$t->run();

srand($seed);
diag("seed $seed");

my (%aborted, %cut, @lost, $n);
my $answered = 0;
$n = 0;

sub size { return $t->status()->{upstreams}{u}{queue}{size} }

for my $round ('quiet', 'aborts', 'reload', 'kill', 'all') {

    my %open;
    my $file = "go_$round";

    for (1 .. $parked) {
        my $uri = '/' . $n++;

        $open{$uri} = $t->start("POST $uri",
                                chat(text(100 + int rand 6000, $n)),
                                headers => {
                                    'X-B0' => "wait $file",
                                    'X-B1' => "wait $file",
                                    'X-Class' => int rand 8,
                                    'X-Tenant' => 't' . int rand 3,
                                    'X-Weight' => 1 + int rand 3 });
    }

    # at most three and two are admitted; the limit by work can admit fewer

    ok(wait_for(sub {
        my $size = size();
        return defined $size && $size >= $parked - 5
               && ($t->load())[0] + $size == $parked;
    }), "$round: they wait");

    cmp_ok(($t->load())[0], '<=', 5, "$round: caps are kept");

    if ($round =~ /aborts|all/) {
        for my $uri (grep { rand() < .3 } sort keys %open) {
            close delete $open{$uri};
            $aborted{$uri} = 1;
        }
    }

    $t->reload() if $round =~ /reload|all/;

    my $killed = $round =~ /kill|all/;

    if ($killed) {
        my @w = $t->workers();
        $t->kill_worker($w[rand @w]);
    }

    $t->step($file);

    # during admission, some more clients leave

    if ($round =~ /aborts|all/) {
        for my $uri (grep { rand() < .1 } sort keys %open) {
            close delete $open{$uri};
            $aborted{$uri} = 1;
        }
    }

    for my $uri (sort keys %open) {
        my $status = $t->finish($open{$uri})->{status};

        if ($status == 200) {
            $answered++;

        } elsif ($killed && $status == 0) {
            $cut{$uri} = 1;

        } else {
            push @lost, "$round $uri $status";
        }
    }

    ok($t->idle(), "$round: no request is left in the counters");
    ok(wait_for(sub { my $size = size(); defined $size && $size == 0 }),
       "$round: no request waits");
}

my %served;
$served{$_}++ for map { $t->backend_log($_) } 'B0', 'B1';

my @twice = grep { $served{$_} > 1 } keys %served;
my @unserved = grep { !$aborted{$_} && !$cut{$_} && !$served{$_} }
               map { "/$_" } 0 .. $n - 1;

diag("$n requests, $answered answered, " . keys(%aborted) . ' left, '
     . keys(%cut) . ' of killed workers');

is("@lost", '', 'none was lost');
is("@unserved", '', 'all answered ones reached a peer');
is("@twice", '', 'none reached a peer twice');
is($answered + keys(%aborted) + keys(%cut), $n, 'all are accounted for');
cmp_ok($answered, '>', $n / 3, 'most were answered');

$t->done();
