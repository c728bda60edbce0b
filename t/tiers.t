#!/usr/bin/perl

# Engines with host memory below the GPU's, six times as large, and a working set
# that three of both GPU caches would hold: with probes and no configured capacity,
# prompts are sent back to the engine that caches them.  Hybrid models: the status
# says where they resume, and a miss does not count as a restart.

use lib 't/lib';
use Kvroute;
use List::Util qw(shuffle);

srand 7;

my $t = Kvroute->new();

# 8,192 tokens on the GPU, 49,152 in host memory: all prompts, however they are divided

my @tiers = ('--hardware', 'none', '--model', 'm', '--kv-cache-size', 512,
             '--kv-host-size', 3072, '--enable-prompt-tokens-details');
my @e = $t->engines(2, @tiers);
my @told = $t->engines(2, @tiers);
my @hybrid = $t->engines(2, '--hardware', 'none', '--model', 'm',
                         '--hybrid-blocks', 33,
                         '--enable-prompt-tokens-details');

$t->conf(<<'EOF');
    kvroute_zone zone=z:4m;

    upstream learned { zone learned 64k; kvroute kv_cache zone=z;
                       kvroute_probe interval=100ms;
                       server 127.0.0.1:%%E0%%; server 127.0.0.1:%%E1%%; }
    upstream told { zone told 64k; kvroute kv_cache zone=z capacity=64m+192k;
                    kvroute_probe interval=100ms;
                    server 127.0.0.1:%%E2%%; server 127.0.0.1:%%E3%%; }
    upstream hybrid { zone hybrid 64k; kvroute kv_cache zone=z;
                      server 127.0.0.1:%%E4%%;
                      server 127.0.0.1:%%E5%% down; }

    location /learned/ { proxy_pass http://learned/; }
    location /told/ { proxy_pass http://told/; }
    location /hybrid/ { proxy_pass http://hybrid/; }
    location = /kvroute/json { kvroute_status json; access_log off; }
    location = /kvroute/metrics { kvroute_status prometheus; access_log off; }
EOF

$t->run();

sub ask {
    my ($up, $text) = @_;

    my $r = $t->post("/$up/v1/chat/completions", chat($text, max_tokens => 1));
    my $u = JSON::PP::decode_json($r->{body})->{usage};

    return ($u->{prompt_tokens}, $u->{prompt_tokens_details}{cached_tokens}
                                 || 0);
}

# 48 prompts of 1,000 tokens, at random

sub round {
    my ($up) = @_;
    my ($prompt, $cached) = (0, 0);

    for my $n (shuffle 0 .. 47) {
        my ($p, $c) = ask($up, text(4000, 100 + $n));
        $prompt += $p;
        $cached += $c;
    }

    return $cached / $prompt;
}

for my $up ('learned', 'told') {
    for (my $p = 0; $p < 2; $p++) {
        my $e = ($up eq 'told' ? \@told : \@e)->[$p];
        wait_for(sub { $t->peer($up, $e)->{capacity_source} ne 'assumed' });
    }
}

my @share = map { round('told') } 1 .. 3;
cmp_ok($share[2], '>', 0.95, "told: cached in the third round (@share)");

my $p = $t->peer('told', $told[0]);
cmp_ok($p->{capacity_bytes}, '>', 120_000, 'the capacity includes host memory');
cmp_ok($p->{gpu_bytes}, '<', 40_000, 'the GPU part is known');

@share = map { round('learned') } 1 .. 6;
cmp_ok($share[5], '>', 0.95, "learned: cached in the sixth round (@share)");

my $c = $t->peer('learned', $e[0])->{cache};
is($c->{flushes_usage}, 0, 'no restart is assumed');

# 16 prompts with a common prefix, at whose end no state is kept

for my $n (1 .. 48) {
    ask('hybrid', text(6000, 1) . text(2000 + 400 * ($n % 5), 200 + $n % 12));
}

$p = $t->peer('hybrid', $hybrid[0]);
is($p->{cache}{flushes_usage}, 0, 'hybrid: a miss does not count as a restart');

my $u = $t->status()->{upstreams}{hybrid}{resumes};
is($u->{tokens}, 528, 'hybrid: it resumes at multiples of 528 tokens');
like($u->{text}, qr/^this model resumes at multiples of 528 tokens; \d+ % of /,
     'the status has a sentence on it');
like($t->get("/kvroute/metrics")->{body},
     qr/kvroute_upstream_resume_tokens\{[^}]*upstream="hybrid"\} 528\n/,
     'a metric has it');

$t->done();
