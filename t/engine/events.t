#!/usr/bin/perl

# KV events of the emulated engine: what they say of its cache, in each encoding, and
# what can go wrong with them.

use lib 't/lib';
use JSON::PP;
use Kvroute;
use Kvroute::Zmtp qw(unpack_msgpack);

my $t = Kvroute->new();
my ($port, $zmq, $replay);
my $block = 16;

sub replica {
    my (@args) = @_;

    ($zmq, $replay) = $t->ports(2);
    ($port) = $t->engines(1, '--hardware', 'none', '--kv-events', $zmq,
                          '--kv-replay', $replay, '--kv-cache-size', 64,
                          '--output-tokens', 4, @args);
}

sub subscribe {
    my $z = Kvroute::Zmtp->new(SUB => $zmq, 'kv') or die "no publisher\n";

    wait_for(sub { events()->{subscribers} }) or die "it knows of no subscriber\n";

    return $z;
}

sub events {
    return $t->control($port)->{kv_events};
}

# prompts of so many whole blocks, and a few tokens

sub ask {
    my ($seed, $blocks, %arg) = @_;

    my $prompt = substr($seed x ($block * 4 * $blocks), 0, $block * 4 * $blocks) . 'end.';

    return $t->post('/v1/completions',
                    encode_json({ model => 'emulated', prompt => $prompt }),
                    port => $port, %arg);
}

# the next message: its number and its events, each as [ name, hashes, fields ]

sub next_of {
    my ($z) = @_;

    my ($topic, $seq, $payload) = @{$z->message()};

    return (unpack('Q>', $seq), map { plain($_) } @{unpack_msgpack($payload)->[1]});
}

sub plain {
    my ($e) = @_;

    return { map { ($_ => $e->{$_}) } keys %$e, } if ref $e eq 'HASH';

    my %e;
    @e{qw(type block_hashes parent_block_hash token_ids block_size lora_id medium
          lora_name)} = @$e;
    $e{medium} = $e->[2] if $e{type} eq 'BlockRemoved';

    return \%e;
}


# what is stored: chains, in their order, with what the request has told of itself

replica();

my $z = subscribe();

ask('a', 3, headers => { 'X-Session-ID' => 'one' });

my ($seq, @e) = next_of($z);

is($seq, 0, 'numbers begin at 0');
is(scalar @e, 1, 'a prompt: one event');
is($e[0]{type}, 'BlockStored', 'of blocks that were stored');
is(scalar @{$e[0]{block_hashes}}, 3, 'whole blocks only');
is(scalar @{$e[0]{token_ids}}, 3 * $block, 'with tokens of each');
is($e[0]{block_size}, $block, 'and their size');
is($e[0]{parent_block_hash}, undef, 'from the beginning on');
is($e[0]{session_id}, 'one', 'the session comes back');

my @first = @{$e[0]{block_hashes}};

ask('a', 5);
($seq, @e) = next_of($z);
is($seq, 1, 'the next one');
is($e[0]{parent_block_hash}, $first[-1], 'what goes on has a parent');
is(scalar @{$e[0]{block_hashes}}, 2, 'what is there is not told again');
ok(!exists $e[0]{session_id}, 'a request without a session');

# a reply fills blocks: each is told when it is full

ask('r', 1, headers => { 'X-Engine-Output-Tokens' => 3 * $block });
(undef, @e) = next_of($z);
my $parent = $e[0]{block_hashes}[-1];

for (1 .. 3) {
    (undef, @e) = next_of($z);
    is($e[0]{parent_block_hash}, $parent, 'a block of the reply');
    $parent = $e[0]{block_hashes}[-1];
}

# what has to make room is told in the message of what takes it

ask($_, 20) for qw(b c);
next_of($z) for 1 .. 2;
ask('d', 20);
($seq, @e) = next_of($z);

my @removed = grep { $_->{type} eq 'BlockRemoved' } @e;

cmp_ok(scalar @removed, '>', 5, 'a full cache: blocks are removed');
ok((grep { $_->{block_hashes}[0] == $first[0] } @removed), 'the oldest ones');
is(scalar(grep { @{$_->{block_hashes}} != 1 } @removed), 0, 'one in an event');
is(events()->{removed}, scalar @removed, 'and counted');

# emptied: told with the next step

$t->post('/reset_prefix_cache', '', port => $port);
ask('a', 3);
($seq, @e) = next_of($z);
is($e[0]{type}, 'AllBlocksCleared', 'an emptied cache');
is($e[1]{type}, 'BlockStored', 'and what came next');
is("@{$e[1]{block_hashes}}", "@first", 'the same blocks have the same names');

my $last = $seq;


# a replay: from a number on, and an end

my $d = Kvroute::Zmtp->new(DEALER => $replay);
my @answers;

sub replayed {
    my ($from) = @_;

    my @m;

    $d->send('', pack('Q>', $from));

    for ( ;; ) {
        my @frames = @{$d->message()};
        my $n = unpack 'q>', $frames[-2];

        push @answers, scalar @frames;
        return @m if $n == -1 && $frames[-1] eq '';
        push @m, $n;
    }
}

is(join(' ', replayed($last - 2)), join(' ', $last - 2 .. $last), 'a replay');
is($answers[-1], 4, 'with the topic');
is(join(' ', replayed(0)), join(' ', 0 .. $last), 'of all');
is(join(' ', replayed($last + 1)), '', 'of nothing');
$d->send('what');
is(join(' ', replayed($last)), $last, 'what is no question gets no answer');


# faults

sub numbers {
    my ($n) = @_;

    ask("n$_", 1) for 1 .. $n;
}

sub read_numbers {
    my ($n) = @_;

    return join ' ', map { (next_of($z))[0] - $last } 1 .. $n;
}

sub fresh {
    $t->post('/reset_prefix_cache', '', port => $port);
    ($last) = map { (next_of($z))[0] } map { ask($_, 1) } 'fresh';
}

fresh();
$t->control($port, { kv_lose => 2 });
numbers(3);
is(read_numbers(1), '3', 'two are lost');
is(join(' ', map { $_ - $last } replayed($last + 1)), '1 2 3', 'a replay has them');

fresh();
$t->control($port, { kv_double => 1 });
numbers(2);
is(read_numbers(3), '1 1 2', 'one is sent twice');

fresh();
$t->control($port, { kv_swap => 1 });
numbers(3);
is(read_numbers(3), '2 1 3', 'two are out of order');

fresh();
$t->control($port, { kv_restart => \1 });
is(events()->{messages}, 0, 'numbered anew');
numbers(1);
$last = 0;
is(read_numbers(1), '0', 'from 0 on');

$t->control($port, { kv_garbage => 16 });
my %frames;
my $bad = 0;

for (1 .. 16) {
    my @frames = @{$z->message()};
    $frames{scalar @frames}++;
    $bad += @frames == 3 && !eval { unpack_msgpack($frames[2]) };
}

is_deeply(\%frames, { 1 => 2, 4 => 2, 3 => 12 }, 'garbage: wrong frames');
cmp_ok($bad, '>=', 6, 'and payloads that are none');
ask('after', 1);
is(read_numbers(1), '1', 'and after it the next number');

$t->control($port, { kv_replay_silent => 1 });
$d->send('', pack('Q>', 0));
ok(wait_for(sub { events()->{replays} == 1 }), 'a replay that is not answered');
is(events()->{replayed}, 0, 'at all');
$t->control($port, { kv_replay_silent => 0 });

$t->control($port, { kv_flood => 100_000 });
ok(wait_for(sub { events()->{stored} > 5000 }), 'a flood');
$t->control($port, { kv_flood => 0 });

my ($stored, $removed) = (0, 0);

while ($stored < 5000) {
    for my $e ((next_of($z))[1 .. 300]) {
        next unless $e;
        $stored += @{$e->{block_hashes}} if $e->{type} eq 'BlockStored';
        $removed += @{$e->{block_hashes}} if $e->{type} eq 'BlockRemoved';
    }
}

cmp_ok($stored - $removed, '<=', 64, 'a flood: no more is held than there is room for');


# a publisher that is gone, and a process that is another one

$t->control($port, { kv_mute => \1 });
ok(!eval { $z->message() for 1 .. 10_000; 1 }, 'muted: the connection is closed');
ok(!Kvroute::Zmtp->new(SUB => $zmq, 'kv'), 'and refused');
$t->control($port, { kv_mute => \0 });

$z = subscribe();
ask('b', 1);
cmp_ok((next_of($z))[0], '>', 1, 'heard again: it goes on counting');

$t->control($port, { restart => \1 });
ok(!eval { $z->message(); 1 }, 'a restart: the connection is closed');

$z = subscribe();
ask('a', 1);
is((next_of($z))[0], 0, 'and numbers begin at 0');

$t->control($port, { down => \1 });
ok(!eval { $z->message(); 1 }, 'down: closed');


# encodings

for my $case ([ 'vllm-array', 'array', 8, 3 ], [ 'vllm-bytes', 'array', 8, 3 ],
              [ 'sglang', 'map', 7, 3 ], [ 'sglang-array', 'array', 7, 3 ],
              [ 'trtllm', 'map', 8, 4 ], [ 'vllm-map', 'map', 11, 4 ])
{
    my ($name, $kind, $fields, $answer) = @$case;

    replica('--kv-encoding', $name);

    $z = subscribe();
    ask('a', 9);
    ask('b', 9);

    my @batch = map { unpack_msgpack($_->[2]) } $z->message(), $z->message();
    my $e = $batch[1][1][0];
    my $hashes = plain($e)->{block_hashes};

    is(scalar @{$batch[0]}, 3, "$name: time, events, rank");
    is($batch[0][2], 0, "$name: the rank");
    is(ref $e eq 'ARRAY' ? 'array' : 'map', $kind, "$name: an event is a $kind");
    is(ref $e eq 'ARRAY' ? scalar @$e : scalar keys %$e, $fields, "$name: of $fields");
    is(plain($e)->{type}, 'BlockStored', "$name: its type");
    is(plain($e)->{medium}, 'GPU', "$name: and the medium");

    if ($name eq 'vllm-bytes') {
        is(length $hashes->[0], 32, "$name: hashes of bytes");

    } elsif ($name =~ /^vllm/) {
        is(scalar(grep { $_ < 0 } @$hashes), 0, "$name: no hash is below 0");

    } else {
        ok((grep { $_ < 0 } map { @{plain($_)->{block_hashes}} }
                            map { @{$_->[1]} } @batch), "$name: hashes have a sign");
    }

    @answers = ();
    $d = Kvroute::Zmtp->new(DEALER => $replay);
    replayed(0);
    is($answers[0], $answer, "$name: frames of a replay");
}


# where they are to be had

my $sources = decode_json($t->get('/kv_event_sources', port => $port)->{body});
is($sources->{0}{endpoint}, "tcp://*:$zmq", 'it tells where its events are');
is($sources->{0}{replay_endpoint}, "tcp://*:$replay", 'and their replay');

$t->done();
