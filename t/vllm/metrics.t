#!/usr/bin/perl

# vLLM's metrics: capacity, load, share of the cache in use, counters of the cache; a
# request stops when its client leaves; load past nginx counts; a cache that was
# emptied by a request.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../lib";
use JSON::PP;
use Vllm;

my $t = Vllm->new();
my @e = $t->fleet();
my $yes = $JSON::PP::true;

$t->front('kvroute_probe interval=100ms timeout=2s;');

my $tokens = 32768;     # examples/demo/vllm.py
my $seed = 0;

sub engine {
    my ($port, $name) = @_;

    return $t->peer('vllm', $port)->{engine}{$name};
}

sub request_of {
    my ($size, %more) = @_;

    return { model => 'm', max_tokens => 2, %more,
             messages => [ { role => 'user', content => words($size, ++$seed) } ] };
}

sub stream {
    my (%more) = @_;

    return Kvroute::chat($more{messages} // request_of(400)->{messages},
                         max_tokens => 8000, stream => $yes, %more);
}


# capacity, to the token; the first responses convert it to bytes

for my $port (@e) {
    ok(wait_for(sub { engine($port, 'capacity_tokens') }), 'an answer to a probe');
    is(engine($port, 'capacity_tokens'), $tokens, 'its capacity, to the token');
    cmp_ok(engine($port, 'kv_usage'), '==', 0, 'idle: nothing in use');
}

my $r = $t->ask('/v1/chat/completions', request_of(4000));
my ($port) = $r->{receipt}{peer} =~ /:(\d+)$/;
my $p;

wait_for(sub { ($p = $t->peer('vllm', $port))->{capacity_source} eq 'reported'
               && $p->{cache}{bytes_per_token} });
is($p->{capacity_source}, 'reported', 'the capacity is reported');
cmp_ok(abs($p->{capacity_bytes} / ($p->{cache}{bytes_per_token} * $tokens) - 1), '<', 0.05,
       'the capacity in bytes');


# counters of the cache: equal to those of vLLM

$t->ask('/v1/chat/completions', request_of(4000)) for 1 .. 2;

for my $port (@e) {
    my %metric = (cache_queries => 'prefix_cache_queries_total',
                  cache_hits => 'prefix_cache_hits_total',
                  preemptions => 'num_preemptions_total');

    for my $name (sort keys %metric) {
        my $is = $t->metric($port, $metric{$name});
        ok(wait_for(sub { (engine($port, $name) // -1) == $is }), "$name: $is")
            or diag(engine($port, $name) // 'none');
    }
}


# load of other clients, who ask one engine past kvroute for more than its cache
# holds

my $busy = $e[0];

$t->others($busy, 0.5, map { $t->start('POST /v1/chat/completions',
                                       stream(messages => request_of(12_000)->{messages}),
                                       port => $busy) } 1 .. 24);

ok(wait_for(sub { engine($busy, 'running') == 0 && engine($busy, 'waiting') == 0 }),
   'the others have left, and vLLM has stopped');
ok(wait_for(sub { engine($busy, 'kv_usage') < 0.01 }), 'nothing of the cache is in use');


# a client that leaves: nginx closes the connection, and vLLM stops

sub made {
    my $sum = 0;
    $sum += $t->metric($_, 'generation_tokens_total') for @e;

    return $sum;
}

for my $how ('a stream', 'a whole response') {
    my $before = made();

    my $s = $t->start('POST /v1/chat/completions',
                      stream(stream => $how =~ /stream/ ? $yes : $JSON::PP::false));

    if ($how =~ /stream/) {
        like($t->read_until($s, qr/"delta":\{[^}]*"content":"[^"]/), qr/ 200 /,
             "$how: begins");
    } else {
        ok(wait_for(sub { grep { $t->metric($_, 'num_requests_running') } @e }),
           "$how: begins");
    }

    close $s;
    ok($t->idle(), "$how: the client has left, and is not counted");
    ok(wait_for(sub { !grep { $t->metric($_, 'num_requests_running') } @e }),
       "$how: vLLM has stopped");

    cmp_ok(made() - $before, '<', 8000, "$how: long before its end");
}


# A cache that is emptied by a request: probes show that no process was restarted,
# so the index is corrected prompt by prompt, and nothing else is forgotten.

my @prompts = map { request_of(4000) } 1 .. 6;

$t->ask('/v1/chat/completions', $_) for @prompts;
$t->forget();

my ($missed, $found) = (0, 0);

for my $body (@prompts) {
    $r = $t->ask('/v1/chat/completions', $body);
    $missed++ if $r->{predicted} > 500 && $r->{said}{cached} == 0;
}

for my $body (@prompts) {
    $r = $t->ask('/v1/chat/completions', $body);
    $found++ if $r->{predicted} > 500 && $r->{said}{cached} > 500;
}

is("$missed $found", '6 6', 'an emptied cache: missed once, then found');

my $cache = $t->cache();

is($cache->{flushes_usage} + $cache->{flushes_probe}, 0,
   'an emptied cache: no server is assumed to have restarted');

$t->done();
