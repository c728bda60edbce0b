#!/usr/bin/perl

# Matching by X-Session-ID: prompts of one length, all at once, so only the session
# distinguishes them; and clients that send their own session.

use lib 't/lib';
use JSON::PP;
use Kvroute;
use Kvroute::Publisher;

use constant { AT_ONCE => 32, LEN => 4_000 };

my $t = Kvroute->new(workers => 2);

# 2048 blocks are 128 KB of prompts: two waves and a little more

my $p = Kvroute::Publisher->new($t, 'one', '--max-num-seqs', AT_ONCE, '--kv-cache-size',
                                2 * AT_ONCE * (LEN / 4 / 16 + 2));

my ($e, $live, $replay) = @$p{qw(port live replay)};

$t->upstream('one', "server 127.0.0.1:$e;", "server 127.0.0.2:$e down;",
             "kvroute_events port=$live replay=$replay aliases=1m;");

$t->conf(<<"EOC");
    kvroute_zone zone=z:4m;
    client_body_buffer_size 1m;

    add_header X-Matched \$kvroute_matched_bytes always;
    location / {
        proxy_pass http://one;
        proxy_set_header X-Session-ID \$request_id;
    }
EOC

$t->run();

sub events { return $p->events(); }

# sends prompts of one length, all before a response is read

sub wave {
    my ($seeds, %arg) = @_;

    my @s = map {
        $t->start('POST /v1/chat/completions', chat(text(LEN, $_), %{$arg{body} || {}}),
                  $arg{direct} ? (port => $e) : (),
                  headers => { 'X-Session-ID' => $arg{session} // 'mine' })
    } @$seeds;

    return map { $t->finish($_) } @s;
}

sub failed { return scalar grep { $_->{status} != 200 } @_; }

ok($p->connected(), 'the publisher is connected');
wave([ 999 ], direct => 1);
ok(wait_for(sub { events()->{trusted} }), 'events are used');

# all are distinguished, with any value of a client's header

my @first = (1 .. AT_ONCE);
my @second = (AT_ONCE + 1 .. 2 * AT_ONCE);

is(failed(wave(\@first)), 0, 'a wave of requests');
is(failed(wave(\@second)), 0, 'and another one');

ok(wait_for(sub { $p->looked_for() == 2 * AT_ONCE }), 'all are to be matched');

# the memory of one server is used, not that of all 64 in the zone

my ($kb) = Kvroute::slurp("/proc/$t->{master}/status") =~ /^RssShmem:\s+(\d+)/m;
cmp_ok($kb, '<', 32 * 1024, 'the memory of other servers is unused');

my $events = events();

is($events->{attributed}, 2 * AT_ONCE, 'all are matched');
is($events->{by_session}, 2 * AT_ONCE, 'by their sessions');
is($events->{ambiguous}, 0, 'none is ambiguous');
is($events->{wrong}, 0, 'none was wrong');

# vLLM reports a client's own session from the body.  Its blocks match no request, not
# even a simultaneous one that stored as many.

$events = events();

my @s = map {
    $t->start('POST /v1/chat/completions', chat(text(LEN, $_), session_id => 'x'))
} 201 .. 204;

is(failed(wave([ 205 ])), 0, 'a request as the others');
is(failed(map { $t->finish($_) } @s), 0, 'requests with the clients\' own sessions');

ok(wait_for(sub { $p->looked_for() == 2 * AT_ONCE + 5 }), 'all are to be matched');
is(events()->{unmatched} - $events->{unmatched}, 4, 'the others are not matched');
is(events()->{by_session} - $events->{by_session}, 1, 'this one is matched');

# Other prompts remove half of the first wave.  For each prompt, the bytes that the index
# assumes must be those that the engine finds.

is(failed(wave([ map { 500 + $_ } 1 .. AT_ONCE / 2 ], direct => 1)), 0, 'other prompts');
ok($p->read_all(), 'events of removed blocks are read')
    or diag(JSON::PP->new->canonical->encode([ events(), $p->published() ]));
cmp_ok(events()->{taken_away}, '>', AT_ONCE / 4 * (LEN / 256),
       'many blocks left the index');

my (%is, @differ);

for my $seed (reverse @first, @second) {
    my ($r) = wave([ $seed ]);
    my $usage = decode_json($r->{body})->{usage};
    my $held = ($r->{headers}{'x-matched'} || 0) > 0 ? 1 : 0;
    my $found = ($usage->{prompt_tokens_details}{cached_tokens} || 0) > 64 ? 1 : 0;

    $is{$found}++;
    push @differ, "$seed: held $held, found $found" if $held != $found;
    $p->read_all();
}

is("@differ", '', 'assumed and found bytes are equal');
cmp_ok($is{$_} // 0, '>', 0, 'of some prompts ' . ($_ ? 'something' : 'nothing')) for 0, 1;

$t->stop();
$t->done();
