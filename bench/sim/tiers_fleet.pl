#!/usr/bin/perl

# Two emulated engines with 8,192 tokens on the GPU and 32,768 in host memory, behind nginx
# with kvroute_probe and nothing else: 48 prompts of 1,000 tokens, each three times, at
# random, 4 at a time; then the same again.  Prints the cached share of the second
# round, as part of what an engine that forgets nothing would have cached.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../../t/lib";
use Kvroute;
use List::Util qw(shuffle);

use constant AT_ONCE => 4;

srand 7;

my $t = Kvroute->new();

my @e = $t->engines(2, '--hardware', 'llama-8b-bf16-h100', '--model', 'm',
                    '--kv-cache-size', 512, '--kv-host-size', 2048,
                    '--speed', 10, '--enable-prompt-tokens-details');

$t->conf(<<'EOF');
    kvroute_zone zone=z:4m;
    upstream u { zone u 64k; kvroute kv_cache zone=z;
                 kvroute_probe interval=500ms;
                 server 127.0.0.1:%%E0%%; server 127.0.0.1:%%E1%%; }
    location / { proxy_pass http://u; }
    location = /kvroute/json { kvroute_status json; access_log off; }
EOF

$t->run();
wait_for(sub { $t->peer('u', $e[1])->{engine}{capacity_tokens} });

my @share;

for my $round (1, 2) {

    my ($prompt, $cached) = (0, 0);
    my @todo = shuffle map { ($_) x 3 } 0 .. 47;

    while (my @now = splice @todo, 0, AT_ONCE) {

        my @request = map {
            $t->start('POST /v1/chat/completions',
                      chat(text(4000, 100 + $_), max_tokens => 1))
        } @now;

        for my $request (@request) {
            my $usage = JSON::PP::decode_json($t->finish($request)->{body})
                        ->{usage};
            $prompt += $usage->{prompt_tokens};
            $cached += $usage->{prompt_tokens_details}{cached_tokens} || 0;
        }
    }

    push @share, $cached / $prompt;
}

# all but the last block, and the few tokens behind it

printf "%.3f\n", $share[1] / 0.995;

$t->stop();
