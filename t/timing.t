#!/usr/bin/perl

# First tokens: an engine that tells nothing of its cache is timed.  One that
# is small is found out; of one that is large, and uneven, nothing is forgotten;
# and what tells by itself, or does not stream, is not timed.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use Kvroute;

my $t = Kvroute->new();

# a prompt of 24 KB takes 70 ms; the small one holds not quite four of them

my @how = ('--hardware', 'none', '--model', 'm', '--bytes-per-token', 4,
           '--prefill-time-per-token', '0.01ms', '--prefill-overhead', '5ms');

my ($small) = $t->engines(1, @how, '--kv-cache-size', 1400);
my ($large) = $t->engines(1, @how);
my ($tells) = $t->engines(1, @how, '--kv-cache-size', 1400,
                          '--enable-prompt-tokens-details');
my ($writes) = $t->engines(1, @how, '--prefill-time-per-token', '0.03ms',
                           '--inter-token-latency', '0ms',
                           '--output-tokens', 1500);

$t->conf(<<'EOF');
http {
%%TEMP%%
    access_log off;
    kvroute_zone zone=z:8m;
    client_body_buffer_size 64k;

    upstream small { zone small 64k; kvroute kv_cache zone=z;
                     server 127.0.0.1:%%E0%%; server 127.0.0.1:1 down; }
    upstream large { zone large 64k; kvroute kv_cache zone=z;
                     server 127.0.0.1:%%E1%%; server 127.0.0.1:2 down; }
    upstream tells { zone tells 64k; kvroute kv_cache zone=z;
                     server 127.0.0.1:%%E2%%; server 127.0.0.1:3 down; }
    upstream writes { zone writes 64k; kvroute kv_cache zone=z;
                      server 127.0.0.1:%%E3%%; server 127.0.0.1:4 down; }

    server {
        listen 127.0.0.1:%%PORT%%;
        location /small/ { proxy_pass http://small/; }
        location /large/ { proxy_pass http://large/; }
        location /tells/ { proxy_pass http://tells/; }
        location /writes/ { proxy_pass http://writes/; }
        location = /kvroute/json { kvroute_status json; }
    }
}
EOF

$t->run();

my $default = 64 * 1024 * 1024;

sub ask {
    my ($up, $seed, $stream) = @_;

    $t->post("/$up/v1/chat/completions",
             chat(text(24 * 1024, $seed), max_tokens => 1,
                  stream => $stream // JSON::PP::true,
                  stream_options => { include_usage => JSON::PP::true }));
}

# each prompt twice, in turn: old ones are lost, those of just now are not

sub round {
    my ($up, $first, $stream) = @_;

    for my $seed ($first .. $first + 5) {
        ask($up, $seed, $stream) for 1 .. 2;
    }
}

sub user {
    my ($len, $seed) = @_;

    return { role => 'user', content => text($len, $seed) };
}

sub is_held {
    my ($up, $port) = @_;

    my $p = $t->peer($up, $port);

    return ($p->{capacity_bytes}, @{$p->{cache}}{qw(timed_held timed_lost)});
}

# what is no stream begins with its end

round('small', 11, JSON::PP::false);

is(join(' ', is_held('small', $small)), "$default 0 0", 'no streams');

# how long it takes to be sure depends on the machine: new ones each time

for (1 .. 20) {
    round('small', 20 * $_) for 1 .. 2;
    last if (is_held('small', $small))[0] < $default;
}

my ($size, $held, $lost) = is_held('small', $small);

cmp_ok($held, '>=', 4, 'held');
cmp_ok($lost, '>=', 4, 'lost');
cmp_ok($size, '<', 400 * 1024, 'a small one is found out');
cmp_ok($size, '>=', 24 * 1024, 'and holds something');

# nor is that forgotten by a reload

$t->reload();
ask('small', 20) for 1 .. 2;

cmp_ok((is_held('small', $small))[0], '<', 400 * 1024, 'and stays one');

# large, at an uneven pace

for my $n (1 .. 20) {
    for my $i (1 .. 3) {
        $t->control($large, { delay_ms => ($n + $i * 7) % 30 });
        round('large', 20 * $n);
    }

    last if (is_held('large', $large))[1] >= 20;
}

($size, $held, $lost) = is_held('large', $large);

cmp_ok($held, '>=', 20, 'held by a large one');
is($size, $default, 'of which nothing is forgotten');

# its own word is better

round('tells', 1) for 1 .. 2;

($size, $held, $lost) = is_held('tells', $tells);

is("$held $lost", '0 0', 'who tells is not timed');
cmp_ok($size, '<', 400 * 1024, 'but believed');

# a large one whose template writes replies in another way than it has done:
# what was asked before is there, and the reply to be computed

sub turn {
    my ($chat, $reply, $ms) = @_;

    my $r = $t->post('/writes/v1/chat/completions',
                     JSON::PP->new()->encode({ model => 'm', stream => \1,
                                               messages => $chat,
                                               max_tokens => $reply }),
                     headers => { 'X-Engine-Delay-Ms' => $ms });

    return join '', $r->{body} =~ /"content":"([^"\\]*)"/g;
}

my @chats = map { [ user(1024, 500 + $_) ] } 1 .. 8;

turn([ user(24 * 1024, $_ + 600) ], 1, 0),
    turn([ user(200, $_ + 650) ], 1, 0) for 1 .. 6;

push @$_, { role => 'assistant', content => turn($_, 1500, 0) },
          user(100, 1) for @chats;

cmp_ok(length $chats[0][1]{content}, '>', 5000, 'a reply');

turn([ user(50 * 1024, 700 + $_) ], 1, 0) for 1 .. 2;

for my $n (1 .. 20) {
    for my $chat (@chats) {
        turn($chat, 1, $n == 1 ? 45 : 0);
        turn($chat, 1, 0) for 1 .. 2;
    }

    last if (is_held('writes', $writes))[1] >= 4;

    turn([ user(24 * 1024, 700 + 10 * $n + $_) ], 1, 0) for 1 .. 6;
}

($size, $held) = is_held('writes', $writes);

cmp_ok($held, '>=', 4, 'held by one that does not keep replies');
is($size, $default, 'of which nothing is forgotten');

$t->done();
