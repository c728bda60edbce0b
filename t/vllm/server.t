#!/usr/bin/perl

# One vLLM with many options, beside another one: its states while it starts; adapters,
# priorities; its answers under overload; the endpoints of its KV events; a kill and a
# restart.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../lib";
use JSON::PP;
use Time::HiRes qw(time);
use Vllm;

my $t = Vllm->new();
my ($other) = $t->fleet();

delete $t->{vars}{$_} for grep { /^E[1-9]/ } keys %{$t->{vars}};

my ($port) = $t->ports(1);
my $build = $ENV{BUILD} || "$FindBin::Bin/../../build";
my $yes = $JSON::PP::true;
my $seed = 0;

$t->{vars}{E1} = $port;

my @flags = ('--enable-lora', '--lora-modules', "a=$build/vllm/a", "b=$build/vllm/b",
             '--max-loras', 1, '--max-lora-rank', 8, '--max-cpu-loras', 2,
             '--scheduling-policy', 'priority', '--max-num-seqs', 2,
             '--max-num-queued-reqs', 4);

my @here = (headers => { 'X-Peer' => "127.0.0.1:$port" });

sub mine { return $t->peer('vllm', $port); }

sub request_of {
    my ($size, %more) = @_;

    return { model => 'm', max_tokens => 2, %more,
             messages => [ { role => 'user', content => words($size, ++$seed) } ] };
}


# While it starts its port is closed: connections are refused, it is down, and no
# request fails.

$t->front(<<'EOF', <<'EOF');
kvroute_probe timeout=2s;
        kvroute_health interval=200ms timeout=2s;
EOF
proxy_next_upstream error timeout http_502 http_503 non_idempotent;
            proxy_next_upstream_tries 2;
            kvroute_pin $http_x_peer;
EOF

ok(wait_for(sub { mine()->{health} eq 'down' }), 'the port is closed: down');
is(mine()->{health_checks}{last_passed}, $JSON::PP::false, 'its checks fail');

$t->server($port, \@flags);

my %status;

$status{$t->ask('/v1/chat/completions', request_of(500))->{status}}++ for 1 .. 6;
is_deeply(\%status, { 200 => 6 }, 'while it starts: all are served');

$t->ready($port);

ok(wait_for(sub { mine()->{health} eq 'up' }), 'it answers: up');
ok(wait_for(sub { mine()->{engine}{capacity_tokens} }),
   'it answers: the capacity is reported');


# adapters: one slot

sub direct {
    my ($body) = @_;

    return $t->request('POST /v1/chat/completions', JSON::PP->new->encode($body),
                       port => $port, timeout => 300);
}

is(direct(request_of(500, model => 'a'))->{status}, 200, 'an adapter: served');

ok(wait_for(sub { mine()->{engine}{max_adapters} }), 'the adapter slots are reported')
    or diag(JSON::PP->new->canonical->encode(mine()->{engine}));
is(mine()->{engine}{max_adapters}, 1, 'one slot');

my $long = direct_stream(model => 'b');

ok(wait_for(sub { mine()->{engine}{adapters} == 1 }), 'one slot is in use');
close $long;
ok(wait_for(sub { mine()->{engine}{adapters} == 0 }), 'then no slot is in use');

sub direct_stream {
    my $s = $t->start('POST /v1/chat/completions', JSON::PP->new->encode(
        request_of(400, stream => $yes, max_tokens => 8000, @_)), port => $port);

    $t->read_until($s, qr/"delta":\{[^}]*"content":"[^"]/);

    return $s;
}

# a prompt of one adapter is not cached for another one

my $text = words(4000, ++$seed);
my @said;

for my $model (qw(m a b a)) {
    my $r = direct({ model => $model, max_tokens => 2,
                     messages => [ { role => 'user', content => $text } ] });
    push @said, usage($r->{body})->{cached} > 500 ? 'found' : 'new';
}

is("@said", 'new new new found', 'each adapter has its own blocks');


# priorities: vLLM accepts the field of the body

my $r = direct(request_of(400, priority => -5));
is($r->{status}, 200, 'a priority: accepted') or diag($r->{body});


# More requests than may wait: 503 in JSON without a time.  That is pressure and not a
# failure; requests go to the other server.

my @s = map { direct_stream() } 1 .. 2;

push @s, map { $t->start('POST /v1/chat/completions', JSON::PP->new->encode(
                   request_of(400, max_tokens => 4)), port => $port) } 1 .. 2;

ok(wait_for(sub { $t->metric($port, 'num_requests_waiting') == 2 }), 'two wait');

$r = direct(request_of(400));
is($r->{status}, 503, 'one more: rejected');
like($r->{headers}{'content-type'}, qr{^application/json}, 'rejected in JSON');
is($r->{headers}{'retry-after'}, undef, 'rejected without Retry-After');
cmp_ok($t->metric($port, 'admission_rejections_total'), '>', 0, 'vLLM counts it');
is($t->get('/health', port => $port)->{status}, 200, 'its health is good');

my $fails = mine()->{fails};

$r = $t->ask('/v1/chat/completions', request_of(100), @here);

is($r->{status}, 200, 'through nginx: served');
like($r->{receipt}{addr}, qr/:$port, .*:$other$/, 'by the other server, after this one');
ok(mine()->{pressed}, 'this server is pressed');
is(mine()->{fails}, $fails, 'no failure is counted');
is(mine()->{state}, 'up', 'the server is still up');

close $_ for @s;
ok(wait_for(sub { $t->metric($port, 'num_requests_running') == 0 }), 'all have left');


# the endpoint of its KV events

my $events = $port + Vllm::EVENTS;
my $sources = eval { decode_json($t->get('/kv_event_sources', port => $port)->{body}) };

like(JSON::PP->new->canonical->encode($sources // {}), qr/:$events\b/,
     'the endpoint is reported');
note(JSON::PP->new->canonical->encode($sources // {}));


# Killed and started again: requests in progress go elsewhere or get a 502, no other one
# fails, and its index is flushed at once.

ok(wait_for(sub { !mine()->{pressed} }), 'not pressed any more');

my @prompts = map { request_of(4000) } 1 .. 3;

$t->ask('/v1/chat/completions', $_, @here) for @prompts;

for (@prompts) {
    $r = $t->ask('/v1/chat/completions', $_);
    like($r->{receipt}{peer}, qr/:$port$/, 'a cached prompt goes there');
    cmp_ok($r->{predicted}, '>', 500, 'its tokens are predicted');
}

$t->expect_log(qr/connect\(\) failed|upstream prematurely closed|recv\(\) failed/);
$t->end($port, 'KILL');

%status = ();
$status{$t->ask('/v1/chat/completions', $_)->{status}}++ for @prompts;
is_deeply(\%status, { 200 => 3 }, 'killed: the other server serves its prompts');

ok(wait_for(sub { mine()->{health} eq 'down' }), 'it is down');

my $flushed = mine()->{cache}{flushes_probe};

$t->server($port, [ @flags, '--no-enable-prompt-tokens-details',
                    '--enable-force-include-usage' ]);

ok(wait_for(sub { $t->connect($port) }, 600), 'it listens again');
my $begun = time();
ok(wait_for(sub { mine()->{cache}{flushes_probe} > $flushed }, 30),
   'killed: its index is flushed');
my $ms = int(1000 * (time() - $begun));

Vllm::figure(restart_ms => $ms);
ok(wait_for(sub { mine()->{health} eq 'up' }), 'it is up');
is(mine()->{cache}{flushes_probe}, $flushed + 1, 'the flush is counted once');


# now without --enable-prompt-tokens-details: one dialect reports cached tokens

$t->ready($port);

my %tells = (
    '/v1/chat/completions' => [ 0, request_of(4000) ],
    '/v1/completions' => [ 0, { model => 'm', prompt => words(4000, ++$seed),
                                max_tokens => 2 } ],
    '/v1/messages' => [ 0, request_of(4000) ],
    '/v1/responses' => [ 1, { model => 'm', input => words(4000, ++$seed),
                              max_output_tokens => 2 } ],
);

for my $uri (sort keys %tells) {
    my ($tells, $body) = @{$tells{$uri}};

    $t->ask($uri, $body, @here);
    $r = $t->ask($uri, $body, @here);

    cmp_ok($r->{logged}{prompt}, '>', 500, "$uri: tokens of the prompt");
    is(($r->{logged}{cached} // 0) > 500 ? 1 : 0, $tells,
       "$uri: cached ones " . ($tells ? 'are reported' : 'are not reported'));
}

# with --enable-force-include-usage streams report tokens unasked

$r = $t->ask('/v1/chat/completions', request_of(4000, stream => $yes), @here);
cmp_ok($r->{logged}{prompt}, '>', 500, 'a stream without include_usage reports tokens');

$r = $t->ask('/v1/chat/completions', request_of(4000, stream => $yes),
             headers => { 'X-Peer' => "127.0.0.1:$other" });
is($r->{logged}{prompt}, undef, 'the other server reports none in such a stream');


# prefix caching switched off

sub again {
    $t->end($port);
    wait_for(sub { mine()->{health} eq 'down' });
    $t->server($port, [ @_ ]);
    $t->ready($port);
    wait_for(sub { mine()->{health} eq 'up' });
}

again('--no-enable-prefix-caching');

ok(wait_for(sub { mine()->{capacity_source} eq 'reported' && mine()->{capacity_bytes} <= 256 }),
   'no prefix caching: the capacity is a block')
    or diag(JSON::PP->new->canonical->encode(mine()));

my $body = request_of(4000);

$t->ask('/v1/chat/completions', $body, @here);
cmp_ok($t->ask('/v1/chat/completions', $body, @here)->{receipt}{matched}, '<=', 256,
       'no prefix caching: at most a block is predicted');


# metrics switched off

again('--disable-log-stats');

# it still has counters of tool calls

unlike($t->get('/metrics', port => $port)->{body}, qr/^vllm:(?!tool_call_parser_)/m,
       '--disable-log-stats: no metrics of the load');

my $failed = mine()->{engine}{failed};

ok(wait_for(sub { mine()->{engine}{failed} > $failed }), 'a probe without a useful answer');
is($t->ask('/v1/chat/completions', request_of(400), @here)->{status}, 200,
   'the server is still up');

$t->done();
