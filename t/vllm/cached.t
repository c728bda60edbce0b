#!/usr/bin/perl

# Predicted and delivered tokens: agents whose conversations grow, with a cache that
# holds them all, one that evicts, and one that preempts requests.  The figures go to
# build/vllm.json.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../lib";
use JSON::PP;
use Vllm;

my $t = Vllm->new();
my @e = $t->fleet();

$t->front('kvroute_probe interval=500ms timeout=5s;');
wait_for(sub { $t->peer('vllm', $e[-1])->{engine}{capacity_tokens} });

my @runs = (
    [ 'plain', sessions => 12, at_once => 6, turns => 5,
      prompt => 4000, more => 1000, reply => 24 ],
    [ 'evicting', Vllm::EVICTING ],
    [ 'preempting', sessions => 64, at_once => 64, turns => 3,
      prompt => 4000, more => 1000, reply => 200 ],
);

for my $run (@runs) {
    my ($name, %arg) = @$run;

    my $preempted = counted('num_preemptions_total');
    my $hits = counted('prefix_cache_hits_total');
    my $figures = $t->measure(%arg);

    $figures->{preemptions} = counted('num_preemptions_total') - $preempted;

    Vllm::figure($name => $figures);
    note("$name: " . JSON::PP->new->canonical->encode($figures));

    is($figures->{errors}, 0, "$name: no errors");
    is($figures->{flushes}, 0, "$name: no server is assumed to have restarted");
    is($figures->{delivered_tokens}, $figures->{cached_tokens},
       "$name: clients and kvroute have the same tokens");
    is(counted('prefix_cache_hits_total') - $hits, $figures->{cached_tokens},
       "$name: vLLM has the same tokens") unless $figures->{preemptions};

    cmp_ok(abs($figures->{predicted_over_delivered} - 1), '<', 0.05,
           "$name: predicted over delivered: $figures->{predicted_over_delivered}")
        if $name eq 'plain';
}


# the counters of vLLM, all servers together

sub counted {
    my ($name) = @_;

    my $sum = 0;
    $sum += $t->metric($_, $name) for @e;

    return $sum;
}

$t->done();
