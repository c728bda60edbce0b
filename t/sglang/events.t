#!/usr/bin/perl

# KV events of SGLang: maps, with a configured port; predicted tokens follow the caches
# during eviction; a cache emptied by /flush_cache; a restart.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../lib";
use JSON::PP;
use Sglang;

my $t = Sglang->new();
my @e = $t->fleet();
my $more = Vllm::EVENTS;
my $events = "kvroute_events port=+$more replay=+" . 2 * $more . ' aliases=4m;';
my $seed = 0;

$t->front("$events kvroute_probe interval=500ms timeout=5s;",
          'kvroute_pin $http_x_peer;');

sub events_of {
    my ($port) = @_;

    return $t->peer('vllm', $port)->{events} // {};
}

sub heard {
    my ($name) = @_;

    my $sum = 0;
    $sum += events_of($_)->{$name} // 0 for @{$t->{fleet}};

    return $sum;
}

sub flushed { return $t->peer('vllm', $_[0])->{cache}{flushes_event}; }

sub request_of {
    my ($size) = @_;

    return { model => 'm', max_tokens => 2,
             messages => [ { role => 'user', content => words($size, ++$seed) } ] };
}

is($t->get('/kv_event_sources', port => $e[0])->{status}, 404,
   'the engine does not report its publisher');

for my $port (@e) {
    ok(wait_for(sub { events_of($port)->{sources} }), 'its events are read')
        or diag(JSON::PP->new->canonical->encode($t->peer('vllm', $port)));
    ok(wait_for(sub { $t->peer('vllm', $port)->{engine}{capacity_tokens} }),
       'its capacity is reported');
}

my $stored = heard('stored');

$t->ask('/v1/chat/completions', request_of(4000)) for 1 .. 6;
ok(wait_for(sub { heard('stored') > $stored + 6 * 20 }), 'blocks that were stored')
    or diag(JSON::PP->new->canonical->encode(events_of($e[0])));


# conversations that return after caches were used for more

my %before = map { $_ => heard($_) } qw(removed lost garbled);
my $f = $t->measure(Vllm::EVICTING, sessions => 36);

$f->{removed} = heard('removed') - $before{removed};
$f->{attributed} = heard('attributed');
Vllm::figure(events_evicting => $f);
note(JSON::PP->new->canonical->encode($f));

is($f->{errors}, 0, 'evicting: no errors');
is($f->{flushes}, 0, 'evicting: no restart was assumed');
cmp_ok($f->{removed}, '>', 100, 'evicting: blocks were removed');
is(heard($_) - $before{$_}, 0, "evicting: no message was $_") for qw(lost garbled);
is(heard('wrong'), 0, 'evicting: no block is of two prompts');
cmp_ok(abs($f->{predicted_over_delivered} - 1), '<=', 0.1,
       "evicting: predicted over delivered: $f->{predicted_over_delivered}");

for my $port (@e) {
    is(events_of($port)->{state}, 'fresh', 'evicting: events are fresh');
    ok(events_of($port)->{trusted}, 'evicting: events are trusted');
}


# a cache emptied by an API: reported at once, and the index is flushed

my @prompts = map { request_of(4000) } 1 .. 4;
my @here = (headers => { 'X-Peer' => "127.0.0.1:$e[0]" });

$t->ask('/v1/chat/completions', $_, @here) for @prompts;
cmp_ok($t->ask('/v1/chat/completions', $prompts[0], @here)->{predicted}, '>', 500,
       'a cached prompt');

my $flushed = flushed($e[0]);
$t->forget($e[0]);
$t->ask('/v1/chat/completions', request_of(400), @here);
ok(wait_for(sub { flushed($e[0]) > $flushed }), 'an emptied cache: flushed')
    or diag(JSON::PP->new->canonical->encode(events_of($e[0])));

my $predicted = 0;
$predicted += $t->ask('/v1/chat/completions', $_, @here)->{predicted} for @prompts;
is($predicted, 0, 'an emptied cache: no prediction');


# a restart

my ($port) = $t->ports(1);

$t->quit();

$t = Sglang->new();
$t->{fleet} = [ $port ];
$t->{vars}{E0} = $port;
$t->{vars}{E1} = $e[0];
$t->server($port);
$t->ready($port);
$t->front("$events kvroute_probe interval=500ms timeout=5s; "
          . 'kvroute_health uri=/ready interval=500ms timeout=5s;', 'kvroute_pin $http_x_peer;');
@here = (headers => { 'X-Peer' => "127.0.0.1:$port" });

ok(wait_for(sub { events_of($port)->{sources} }), 'events of the new ones are read');

$t->ask('/v1/chat/completions', $prompts[0], @here);
cmp_ok($t->ask('/v1/chat/completions', $prompts[0], @here)->{predicted}, '>', 500,
       'it caches a prompt');

$flushed = flushed($port);
$t->expect_log(qr/connect\(\) failed|upstream prematurely closed|recv\(\) failed/);
$t->end($port, 'KILL');
ok(wait_for(sub { $t->peer('vllm', $port)->{health} eq 'down' }), 'killed: it is down');

my $r = $t->ask('/v1/chat/completions', $prompts[0]);
is($r->{status}, 200, 'killed: the other one serves its prompt');

$t->server($port);
$t->ready($port);
ok(wait_for(sub { flushed($port) > $flushed
                  || $t->peer('vllm', $port)->{cache}{flushes_probe} }, 60),
   'started again: the index is flushed');
ok(wait_for(sub { $t->peer('vllm', $port)->{health} eq 'up' }), 'it is up');
is($t->ask('/v1/chat/completions', $prompts[0], @here)->{predicted}, 0,
   'no prediction');

$t->done();
