#!/usr/bin/perl

# Attribution by X-Session-ID: prompts of one length, all at once, so that only the
# session distinguishes them; and clients that send a session of their own.

use lib 't/lib';
use JSON::PP;
use Kvroute;
use Kvroute::Publisher;

use constant { AT_ONCE => 32, LEN => 4_000 };

my $t = Kvroute->new(workers => 2);

# 2048 blocks are 128 KB of prompts: those of two waves and a little more

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

# prompts of one length, all sent before a response is read

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
ok(wait_for(sub { events()->{trusted} }), 'events are gone by');

# all of them are told apart, whatever a client's header says

my @first = (1 .. AT_ONCE);
my @second = (AT_ONCE + 1 .. 2 * AT_ONCE);

is(failed(wave(\@first)), 0, 'a wave of requests');
is(failed(wave(\@second)), 0, 'and another one');

ok(wait_for(sub { $p->looked_for() == 2 * AT_ONCE }), 'all are looked for');

# memory is that of one server, and not of all 64 that the zone may have

my ($kb) = Kvroute::slurp("/proc/$t->{master}/status") =~ /^RssShmem:\s+(\d+)/m;
cmp_ok($kb, '<', 32 * 1024, 'memory of other servers is not touched');

my $events = events();

is($events->{attributed}, 2 * AT_ONCE, 'and found');
is($events->{by_session}, 2 * AT_ONCE, 'by their sessions');
is($events->{ambiguous}, 0, 'none may be several');
is($events->{wrong}, 0, 'none was wrong');

# A client's own session in the body is what vLLM tells: its blocks are nobody's, not even
# those of a request at the same time that has stored as many.

$events = events();

my @s = map {
    $t->start('POST /v1/chat/completions', chat(text(LEN, $_), session_id => 'x'))
} 201 .. 204;

is(failed(wave([ 205 ])), 0, 'a request as others');
is(failed(map { $t->finish($_) } @s), 0, 'beside clients with sessions of their own');

ok(wait_for(sub { $p->looked_for() == 2 * AT_ONCE + 5 }), 'all are looked for');
is(events()->{unmatched} - $events->{unmatched}, 4, 'the others are not found');
is(events()->{by_session} - $events->{by_session}, 1, 'the one is');

# Half of the first wave is removed by others' prompts.  What is taken to be held of each is
# what the engine finds: of none that of another.

is(failed(wave([ map { 500 + $_ } 1 .. AT_ONCE / 2 ], direct => 1)), 0, 'others have come');
ok($p->read_all(), 'and what that removed is known')
    or diag(JSON::PP->new->canonical->encode([ events(), $p->published() ]));
cmp_ok(events()->{taken_away}, '>', AT_ONCE / 4 * (LEN / 256), 'much was taken away');

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

is("@differ", '', 'what is held is what is found');
cmp_ok($is{$_} // 0, '>', 0, 'of some prompts ' . ($_ ? 'something' : 'nothing')) for 0, 1;

$t->stop();
$t->done();
