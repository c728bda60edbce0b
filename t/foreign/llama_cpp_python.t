#!/usr/bin/perl

# llama-cpp-python's server, for which kvroute has no dialect.  It has no /health and no
# metrics, reports no cached tokens, runs one request at a time, and ends a stream when
# another request arrives, even for /v1/models.  Turns go to the server with their prompt,
# answers are complete, usage is read.  With max_conns=1, a queue and another page for
# health checks no stream is cut.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../lib";
use JSON::PP;
use Foreign;

my $t = Foreign->new();
my @e = $t->fleet();
my $yes = $JSON::PP::true;
my $seed = 0;

$t->{server_args} = ' max_conns=1';
$t->front('kvroute_health uri=/docs interval=500ms timeout=5s; '
          . 'kvroute_queue max=16 timeout=60s;');

sub chat_of {
    my ($messages, %more) = @_;

    return { model => 'm', max_tokens => 8, temperature => 0, messages => $messages,
             %more };
}

sub user { return { role => 'user', content => words($_[0], ++$seed) }; }

for my $port (@e) {
    ok(wait_for(sub { $t->peer('vllm', $port)->{health_checks}{last_passed} }),
       'healthy by /docs');
    is($t->get('/health', port => $port)->{status}, 404, 'it has no /health');
    is($t->get('/metrics', port => $port)->{status}, 404, 'it has no metrics');
}


# tokens in answers

for my $stream (0, 1) {
    my $body = chat_of([ user(1000) ], $stream ? (stream => $yes,
                       stream_options => { include_usage => $yes }) : ());
    my $r = $t->ask('/v1/chat/completions', $body);
    my $name = $stream ? 'a stream' : 'a whole answer';

    is($r->{status}, 200, "$name: served") or diag($r->{body});
    cmp_ok(length $r->{said}{text}, '>', 8, "$name: text");
    note(JSON::PP->new->canonical->encode({ map { $_ => $r->{$_} } qw(said logged) }));

    is($r->{logged}{prompt}, $r->{said}{prompt}, "$name: tokens of the prompt");
    is($r->{logged}{reply}, $r->{said}{reply}, "$name: tokens of the reply");
    is($r->{logged}{cached}, undef, "$name: cached tokens are not reported");
    is(defined $r->{logged}{prompt} ? 1 : 0, 1 - $stream, "$name: has usage, or not");
}


# conversations: each turn goes to the server of the turn before; its reply equals the
# engine's without nginx

for my $n (1 .. 4) {
    my @messages = user(1500);
    my $peer;

    for my $turn (1 .. 4) {
        my $r = $t->ask('/v1/chat/completions', chat_of(\@messages));

        is($r->{status}, 200, "conversation $n, turn $turn: served");
        is($r->{receipt}{peer}, $peer // $r->{receipt}{peer},
           "conversation $n, turn $turn: at the server with its prompt");
        cmp_ok($r->{receipt}{matched}, '>', 1000, "conversation $n, turn $turn: expected there")
            if $turn > 1;

        $peer = $r->{receipt}{peer};
        push @messages, { role => 'assistant', content => $r->{said}{text} }, user(300);
    }

    my ($port) = $peer =~ /:(\d+)$/;
    my $body = chat_of(\@messages);
    my $direct = usage($t->post('/v1/chat/completions', encode_json($body),
                                port => $port)->{body});

    is($t->ask('/v1/chat/completions', $body)->{said}{text}, $direct->{text},
       "conversation $n: the same answer as without nginx");
}

my %peers;
$peers{$t->peer('vllm', $_)->{requests} > 0}++ for @e;
is($peers{1}, @e, 'all servers had work');


# another request ends a stream early

sub stream_of {
    my (%more) = @_;

    return $t->start('POST /v1/chat/completions', encode_json(
        chat_of([ user(400) ], stream => $yes, max_tokens => 1500)), %more);
}

sub tokens_of {
    my ($s) = @_;

    my $n = () = $t->finish($s)->{body} =~ /"content":/g;
    return $n;
}

my $s = stream_of(port => $e[0]);

$t->read_until($s, qr/"content":/);
$t->get('/v1/models', port => $e[0]);
cmp_ok(tokens_of($s), '<', 1500, 'a stream and /v1/models: cut');


# with max_conns=1 other requests wait in the queue

is_deeply([ map { tokens_of($_) } map { stream_of() } 1 .. 2 * @e ],
          [ (1500) x (2 * @e) ], 'two streams for each server: all complete');


# invalid JSON: the server's 500 is passed on

my $r = $t->request('POST /v1/chat/completions', '{"model"');
is($r->{status}, $t->request('POST /v1/chat/completions', '{"model"',
                             port => $e[0])->{status},
                             'no JSON: its status is passed on');
note("no JSON: $r->{status}");

$t->done();
