#!/usr/bin/perl

# Predicted against delivered tokens under pressure, without KV events and with them: caches
# that suffice, half of the conversations past nginx, caches that are far too small, and
# replies that preempt each other.  The figures go to build/vllm.json.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../lib";
use JSON::PP;
use Vllm;

# 16,384 tokens each

my $first = Vllm->new();
my @e = $first->ports(2);

$first->server(@e, [ '--kv-cache-memory-bytes', 16384 * 1024, '--max-model-len', 8192 ]);
$first->ready($e[0]);

my $probe = 'kvroute_probe interval=500ms timeout=5s;';

my %upstream = (
    without => $probe,
    events => "$probe kvroute_events port=auto aliases=4m;",
);

my @runs = (
    [ 'suffices', sessions => 24, at_once => 10, turns => 7,
      prompt => 1600, more => 800, reply => 24 ],
    [ 'past', sessions => 24, at_once => 10, turns => 7,
      prompt => 1600, more => 800, reply => 24, past => 2 ],
    [ 'small', sessions => 40, at_once => 12, turns => 7,
      prompt => 2400, more => 2400, reply => 24 ],
    [ 'preempting', sessions => 64, at_once => 64, turns => 3,
      prompt => 3000, more => 1000, reply => 200 ],
);

my $t;

# how often an event of this name was counted, at all servers together

sub counted {
    my ($group, $name) = @_;

    my $sum = 0;
    $sum += $t->peer('vllm', $_)->{$group}{$name} // 0 for @e;

    return $sum;
}

for my $how (qw(without events)) {
    $t = Vllm->new();
    $t->{vars}{"E$_"} = $e[$_] for 0 .. $#e;
    $t->{fleet} = \@e;
    $t->front($upstream{$how},
              'kvroute_pin $http_x_peer; proxy_set_header X-Session-ID $request_id;');

    for my $port (@e) {
        ok(wait_for(sub { $t->peer('vllm', $port)->{engine}{capacity_tokens} }),
           "$how: a capacity is reported");
        ok($how eq 'without'
           || wait_for(sub { ($t->peer('vllm', $port)->{events} // {})->{sources} }),
           "$how: its events are received");
    }

    for my $run (@runs) {
        my ($name, %arg) = @$run;

        # requests past nginx are not known without events

        next if $arg{past} && $how eq 'without';

        my $found = counted('events', 'attributed') + counted('events', 'unmatched')
                    + counted('events', 'ambiguous');
        my $wrong = counted('events', 'wrong');
        my $preempted = counted('engine', 'preemptions');
        my $figures = $t->measure(%arg, system => 6000);
        my $ratio = $figures->{predicted_over_delivered};

        $figures->{wrong} = counted('events', 'wrong') - $wrong;
        note("$how, $name: " . JSON::PP->new->canonical->encode($figures));
        Vllm::figure("pressure_${how}_$name" => $figures);

        is($figures->{errors}, 0, "$how, $name: no errors");
        is($figures->{flushes}, 0, "$how, $name: no server is assumed to have restarted");
        cmp_ok(abs($ratio - 1), '<=', 0.05, "$how, $name: predicted over delivered: $ratio");

        ok(wait_for(sub { counted('engine', 'preemptions') > $preempted }),
           "$how, $name: preemptions") if $name eq 'preempting';

        next if $how eq 'without';

        # requests from before the first event are attributed as well

        ok(wait_for(sub {
            $found + $figures->{requests} <= counted('events', 'attributed')
            + counted('events', 'unmatched') + counted('events', 'ambiguous');
        }), "$how, $name: each request is in a counter of attribution");

        for my $port (@e) {
            my $events = $t->peer('vllm', $port)->{events};

            is($events->{state}, 'fresh', "$how, $name: events are fresh");
            ok($events->{trusted}, "$how, $name: events are trusted");
        }
    }

    $t->stop();
}

$t->done();
