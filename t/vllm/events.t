#!/usr/bin/perl

# KV events of vLLM: predictions follow the real contents of the caches: while they evict,
# with half of the traffic past kvroute, after a cache was emptied, after a restart.  The
# figures go to build/vllm.json, beside those of cached.t without events.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../lib";
use JSON::PP;
use Time::HiRes qw(time);
use Vllm;

my $t = Vllm->new();
my @e = $t->fleet();
my $more = Vllm::EVENTS;
my $seed = 0;

# the servers report where their events are, and which session stored a block

$t->front('kvroute_events port=auto aliases=4m;' . "\n"
          . '        kvroute_probe interval=500ms timeout=5s;',
          'kvroute_pin $http_x_peer; proxy_set_header X-Session-ID $request_id;');

sub events_of {
    my ($port) = @_;

    return $t->peer('vllm', $port)->{events};
}

sub request_of {
    my ($size) = @_;

    return { model => 'm', max_tokens => 2,
             messages => [ { role => 'user', content => words($size, ++$seed) } ] };
}

for my $port (@e) {
    ok(wait_for(sub { (events_of($port) // {})->{sources} }), 'its events are heard')
        or diag(JSON::PP->new->canonical->encode($t->peer('vllm', $port)));
    ok(wait_for(sub { $t->peer('vllm', $port)->{engine}{capacity_tokens} }),
       'and its capacity is told');
}


# What is stored and removed is what the server has computed: its own counters say so.

sub heard {
    my ($name) = @_;

    my $sum = 0;
    $sum += events_of($_)->{$name} for @e;

    return $sum;
}

my $stored = heard('stored');

$t->ask('/v1/chat/completions', request_of(4000)) for 1 .. 6;
ok(wait_for(sub { heard('stored') > $stored + 6 * 20 }), 'blocks that were stored');


# Conversations, as in cached.t.  Of those that go past kvroute it hears what they store,
# and not what they find, nor what is on its way there: what has to make room for that is
# gone when a request comes for it.  Without aliases the second figure is up to 0.18.

my %aim = (evicting => 0.03, past => 0.15);

# One run has some ten conversations more or less than expected whose blocks are gone, each
# of them a hundredth of all tokens: so three count together.

for my $run ([ 'evicting', 3, Vllm::EVICTING ],
             [ 'past', 3, Vllm::EVICTING, past => 2 ])
{
    my ($name, $times, %arg) = @$run;
    my ($removed, $lost) = (heard('removed'), heard('lost'));
    my ($found, $told) = (heard('attributed'), heard('by_session'));
    my @runs = map { $t->measure(%arg) } 1 .. $times;
    my %all;

    for my $r (@runs) {
        note("$name: " . JSON::PP->new->canonical->encode($r));
        $all{$_} += $r->{$_}
            for qw(requests errors flushes missed predicted_tokens delivered_tokens);
    }

    my $ratio = Vllm::ratio(@all{qw(predicted_tokens delivered_tokens)});

    Vllm::figure("events_$name" => {
        %all, removed => heard('removed') - $removed,
        predicted_over_delivered => $ratio,
        each => [ map { $_->{predicted_over_delivered} } @runs ] });

    is($all{errors}, 0, "$name: no errors");
    is($all{flushes}, 0, "$name: no server is assumed to have restarted");
    is(heard('lost') - $lost, 0, "$name: no message was lost");
    cmp_ok(heard('by_session') - $told, '>', 0.9 * $all{requests},
           "$name: vLLM reports the session of each block");
    is(heard('by_session') - $told, heard('attributed') - $found,
       "$name: all are attributed by session");
    is(heard($_), 0, "$name: no block is $_") for qw(ambiguous wrong);
    cmp_ok(heard('removed') - $removed, '>', 100, "$name: blocks were removed");
    cmp_ok(abs($ratio - 1), '<=', $aim{$name},
           "$name: predicted over delivered: $ratio");
}


# A cache that is emptied by a request: vLLM reports it with the next step, and then
# the whole index of it is flushed, not prompt by prompt.

my @prompts = map { request_of(4000) } 1 .. 6;
my @here = (headers => { 'X-Peer' => "127.0.0.1:$e[0]" });

sub flushed {
    my ($port) = @_;

    return $t->peer('vllm', $port)->{cache}{flushes_event};
}

$t->ask('/v1/chat/completions', $_, @here) for @prompts;
my $r = $t->ask('/v1/chat/completions', $prompts[0], @here);
cmp_ok($r->{predicted}, '>', 500, 'a cached prompt');

my $before = flushed($e[0]);
$t->forget($e[0]);
$t->ask('/v1/chat/completions', request_of(400), @here);
ok(wait_for(sub { flushed($e[0]) > $before }), 'an emptied cache: flushed');

my $predicted = 0;
$predicted += $t->ask('/v1/chat/completions', $_, @here)->{predicted} for @prompts;
is($predicted, 0, 'an emptied cache: nothing is predicted');


# a restart

my $port = ($t->ports(1))[0];

$t->quit();

$t = Vllm->new();
$t->{vars}{E0} = $port;
$t->{vars}{E1} = $e[0];
$t->server($port);
$t->ready($port);
$t->front("kvroute_events port=+$more replay=+" . 2 * $more . ';', 'kvroute_pin $http_x_peer;');
@here = (headers => { 'X-Peer' => "127.0.0.1:$port" });

ok(wait_for(sub { (events_of($port) // {})->{sources} }),
   'events of another server are read');

@prompts = map { request_of(4000) } 1 .. 3;
$t->ask('/v1/chat/completions', $_, @here) for @prompts;
cmp_ok($t->ask('/v1/chat/completions', $prompts[0], @here)->{predicted}, '>', 500,
       'it caches the prompt');

$before = flushed($port);
$t->expect_log(qr/connect\(\) failed|upstream prematurely closed|recv\(\) failed/);
$t->end($port, 'KILL');
$t->server($port);

ok(wait_for(sub { $t->connect($port) }, 600), 'killed: the new process listens');
my $begun = time();
ok(wait_for(sub { flushed($port) > $before }, 30), 'killed: its index is flushed');
my $ms = int(1000 * (time() - $begun));

Vllm::figure(events_restart_ms => $ms);
note("flushed $ms ms after it listened");
$t->ready($port);
is($t->ask('/v1/chat/completions', $prompts[0], @here)->{predicted}, 0,
   'killed: nothing is predicted');

$t->done();
