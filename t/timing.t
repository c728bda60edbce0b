#!/usr/bin/perl

# Times to first token: engines that do not report cached tokens are timed. A
# small cache is noticed, a large cache with uneven times is not underestimated;
# engines that report cached tokens, or do not stream, are not timed.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

# A prompt of 24 KB takes 70 ms; the small cache holds not quite four of them.  On
# a busy machine 70 ms may be too short to classify; then engines are used that
# are five times as slow, and five times as slow again.

my @slow = (1, 5, 25);
my (@small, @large, @writes);

sub how {
    my ($slow) = @_;

    return ('--hardware', 'none', '--model', 'm', '--bytes-per-token', 4,
            '--prefill-time-per-token', 0.01 * $slow . 'ms',
            '--prefill-overhead', 5 * $slow . 'ms');
}

my ($tells) = $t->engines(1, how(1), '--kv-cache-size', 1400,
                          '--enable-prompt-tokens-details');
my $locations = '';

for my $slow (@slow) {
    push @small, $t->engines(1, how($slow), '--kv-cache-size', 1400);
    push @large, $t->engines(1, how($slow));
    push @writes, $t->engines(1, how($slow), '--prefill-time-per-token',
                              0.03 * $slow . 'ms', '--inter-token-latency', '0ms',
                              '--output-tokens', 1500);

    for my $port ($small[-1], $large[-1], $writes[-1]) {
        $t->upstream("u$port", "server 127.0.0.1:$port;",
                     'server 127.0.0.1:1 down;');
        $locations .= "location /$port/ { proxy_pass http://u$port/; }\n";
    }
}

$t->upstream("u$tells", "server 127.0.0.1:$tells;", 'server 127.0.0.1:1 down;');

$t->conf(<<"EOF");
    kvroute_zone zone=z:8m;
    client_body_buffer_size 64k;

    location /$tells/ { proxy_pass http://u$tells/; }
    $locations
    location = /kvroute/json { kvroute_status json; }
EOF

$t->run();

my $default = 64 * 1024 * 1024;

sub ask {
    my ($port, $seed, $stream) = @_;

    $t->post("/$port/v1/chat/completions",
             chat(text(24 * 1024, $seed), max_tokens => 1,
                  stream => $stream // JSON::PP::true,
                  stream_options => { include_usage => JSON::PP::true }));
}

# each prompt twice, in turn: older prompts are evicted, the last ones are not

sub round {
    my ($port, $first, $stream) = @_;

    for my $seed ($first .. $first + 5) {
        ask($port, $seed, $stream) for 1 .. 2;
    }
}

sub user {
    my ($len, $seed) = @_;

    return { role => 'user', content => text($len, $seed) };
}

sub is_held {
    my ($port) = @_;

    my $p = $t->peer("u$port", $port);

    return ($p->{capacity_bytes}, @{$p->{cache}}{qw(timed_held timed_lost)});
}

# an answer in one piece has no first token before its end

round($small[0], 11, JSON::PP::false);

is(join(' ', is_held($small[0])), "$default 0 0", 'no streams: no change');

# how many requests the estimate needs depends on the machine: send new ones
# each time

my ($small, $size, $held, $lost);

for (@small) {
    $small = $_;

    for (1 .. 10) {
        round($small, 20 * $_) for 1 .. 2;
        ($size, $held, $lost) = is_held($small);
        last if $held >= 4 && $lost >= 4 && $size < 400 * 1024;
    }

    last if $held >= 4 && $lost >= 4 && $size < 400 * 1024;
}

cmp_ok($held, '>=', 4, 'prompts that were cached');
cmp_ok($lost, '>=', 4, 'prompts that were evicted');
cmp_ok($size, '<', 400 * 1024, 'a small cache is noticed');
cmp_ok($size, '>=', 24 * 1024, 'the estimate is not zero');

# a reload keeps the estimate

$t->reload();
ask($small, 20) for 1 .. 2;

cmp_ok((is_held($small))[0], '<', 400 * 1024, 'a reload keeps the estimate');

# a large cache, with uneven times

my $large;

for my $k (0 .. $#slow) {
    $large = $large[$k];

    for my $n (1 .. 10) {
        for my $i (1 .. 3) {
            $t->control($large, { delay_ms => ($n + $i * 7) % 30 * $slow[$k] });
            round($large, 20 * $n);
        }

        last if (is_held($large))[1] >= 20;
    }

    last if (is_held($large))[1] >= 20;
}

($size, $held) = is_held($large);

cmp_ok($held, '>=', 20, 'prompts that a large cache holds');
is((is_held($_))[0], $default, 'a large cache keeps its capacity') for @large;

# an engine's report is preferred

round($tells, 1) for 1 .. 2;

($size, $held, $lost) = is_held($tells);

is("$held $lost", '0 0', 'an engine that reports is not timed');
cmp_ok($size, '<', 400 * 1024, 'its report is used');

# a large cache, and a template that renders old replies differently: the
# earlier prompt is cached, and the reply must be computed

sub turn {
    my ($port, $chat, $reply, $ms) = @_;

    my $r = $t->post("/$port/v1/chat/completions",
                     JSON::PP->new()->encode({ model => 'm', stream => \1,
                                               messages => $chat,
                                               max_tokens => $reply }),
                     headers => { 'X-Engine-Delay-Ms' => $ms // 0 });

    return join '', $r->{body} =~ /"content":"([^"\\]*)"/g;
}

my $writes;

for my $k (0 .. $#slow) {
    $writes = $writes[$k];

    my @chats = map { [ user(1024, 500 + $_) ] } 1 .. 8;

    turn($writes, [ user(24 * 1024, $_ + 600) ], 1),
        turn($writes, [ user(200, $_ + 650) ], 1) for 1 .. 6;

    push @$_, { role => 'assistant', content => turn($writes, $_, 1500) },
              user(100, 1) for @chats;

    cmp_ok(length $chats[0][1]{content}, '>', 5000, 'a reply');

    turn($writes, [ user(50 * 1024, 700 + $_) ], 1) for 1 .. 2;

    for my $n (1 .. 10) {
        for my $chat (@chats) {
            turn($writes, $chat, 1, $n == 1 ? 45 * $slow[$k] : 0);
            turn($writes, $chat, 1) for 1 .. 2;
        }

        last if (is_held($writes))[1] >= 4;

        turn($writes, [ user(24 * 1024, 700 + 10 * $n + $_) ], 1) for 1 .. 6;
    }

    last if (is_held($writes))[1] >= 4;
}

($size, $held) = is_held($writes);

cmp_ok($held, '>=', 4, 'prompts that an engine holds without the replies');
is((is_held($_))[0], $default, 'such an engine keeps its capacity') for @writes;

$t->done();
