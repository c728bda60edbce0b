#!/usr/bin/perl

# SGLang's reports besides its replies: capacity, load and counters, in /metrics and, if
# these are disabled, in /v1/loads; other routers' load; clients that leave; a cache
# emptied by /flush_cache.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../lib";
use JSON::PP;
use Sglang;

my $t = Sglang->new();
my @e = $t->fleet();
my $yes = $JSON::PP::true;
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


# /v1/loads: load and capacity, no counters

$t->front('kvroute_probe interval=100ms timeout=5s url=/v1/loads;');

for my $port (@e) {
    ok(wait_for(sub { engine($port, 'capacity_tokens') }), '/v1/loads: an answer');
    is(engine($port, 'capacity_tokens'), $tokens, '/v1/loads: capacity, to the token');
    is(engine($port, 'name'), 'sglang', '/v1/loads: the engine');
}

$t->stop();
$t->front('kvroute_probe interval=100ms timeout=5s;');

for my $port (@e) {
    ok(wait_for(sub { engine($port, 'capacity_tokens') }), '/metrics: an answer');
    is(engine($port, 'capacity_tokens'), $tokens, '/metrics: capacity, to the token');
    is(engine($port, 'name'), 'sglang', '/metrics: the engine');
}


# counters of the cache, as SGLang has counted

$t->ask('/v1/chat/completions', request_of(4000)) for 1 .. 2;
my $again = request_of(4000);
$t->ask('/v1/chat/completions', $again) for 1 .. 2;

for my $port (@e) {
    my %metric = (cache_queries => 'prompt_tokens_total',
                  cache_hits => 'cached_tokens_total');

    for my $name (sort keys %metric) {
        ok(wait_for(sub { (engine($port, $name) // 0)
                          == ($t->metric($port, $metric{$name}) // 0) }),
           "$name: " . (engine($port, $name) // 'none'))
            or diag($t->metric($port, $metric{$name}) // 'none');
    }
}


# other routers' load

my $busy = $e[0];

$t->others($busy, 0.1, map { $t->start('POST /v1/chat/completions', JSON::PP->new->encode(
                                 request_of(8000, max_tokens => 4000, stream => $yes)),
                                 port => $busy) } 1 .. 16);

ok(wait_for(sub { engine($busy, 'running') == 0 && engine($busy, 'waiting') == 0 }, 120),
   'the others have left, and SGLang has aborted');


# a client that leaves

my $s = $t->start('POST /v1/chat/completions', JSON::PP->new->encode(
    request_of(400, max_tokens => 8000, stream => $yes)));

like($t->read_until($s, qr/"delta":\{[^}]*"content":"[^"]/), qr/ 200 /, 'a stream: begins');
close $s;
ok($t->idle(), 'a stream: the client has left, and no request is counted');
ok(wait_for(sub { !grep { $t->metric($_, 'num_running_reqs') } @e }, 120),
   'a stream: SGLang has aborted');


# after a flush by an API the index is corrected prompt by prompt

my @prompts = map { request_of(4000) } 1 .. 6;

$t->ask('/v1/chat/completions', $_) for @prompts;
$t->forget();

my ($missed, $found) = (0, 0);

for my $body (@prompts) {
    my $r = $t->ask('/v1/chat/completions', $body);
    $missed++ if $r->{predicted} > 500 && !$r->{said}{cached};
}

for my $body (@prompts) {
    my $r = $t->ask('/v1/chat/completions', $body);
    $found++ if $r->{predicted} > 500 && $r->{said}{cached} > 500;
}

is("$missed $found", '6 6', 'an emptied cache: missed once, then found');

my $cache = $t->cache();

is($cache->{flushes_usage} + $cache->{flushes_probe}, 0,
   'an emptied cache: no restart was assumed');

$t->done();
