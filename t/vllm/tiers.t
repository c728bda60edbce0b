#!/usr/bin/perl

# vLLM with a host tier behind its KV cache: 48 prompts in three rounds, of which GPU
# memory holds a third, and host memory all.  vLLM reports only GPU memory, and kvroute
# learns the rest from replies; with KV events, from the events of the host tier.  The
# figures go to build/vllm.json.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../lib";
use JSON::PP;
use List::Util qw(shuffle);
use Vllm;

use constant { PROMPTS => 48, AT_ONCE => 4, ROUNDS => 3, BYTES => 5200,
               DEVICE => 8192, HOST => 49152 };

my $first = Vllm->new();
my @e = $first->ports(2);

{
    local $ENV{PYTHONPATH} = $FindBin::Bin;

    $first->server(@e, [ '--kv-cache-memory-bytes', DEVICE * 1024, '--max-model-len', 4096,
        '--kv-transfer-config', encode_json({
            kv_connector => 'OffloadingConnector', kv_role => 'kv_both',
            kv_connector_extra_config => {
                spec_name => 'HostTier', spec_module_path => 'host_tier',
                cpu_bytes_to_use => HOST * 1024, block_size => 32 } }) ]);
}

$first->ready($e[0]);

my $probe = 'kvroute_probe interval=500ms timeout=5s;';
my %policy = (round_robin => [ 'round_robin', $probe ], kv_cache => [ 'kv_cache', $probe ],
              events => [ 'kv_cache', "$probe kvroute_events port=auto aliases=4m;" ]);
my ($t, %computed, $seed);

# sends all of these; returns the tokens of the prompts, and how many were cached

sub ask_all {
    my (@prompts) = @_;

    my @pipes = map {
        my $n = $_;
        my $pid = open my $pipe, '-|';

        die "fork: $!" unless defined $pid;

        if ($pid == 0) {
            my ($prompt, $cached) = (0, 0);

            for my $i (grep { $_ % AT_ONCE == $n } 0 .. $#prompts) {
                my $said = usage($t->post('/v1/completions', encode_json({
                    model => 'm', prompt => $prompts[$i], max_tokens => 4 }))->{body});

                $prompt += $said->{prompt};
                $cached += $said->{cached};
            }

            print "$prompt $cached\n";
            close STDOUT;
            POSIX::_exit(0);
        }

        $pipe;
    } 0 .. AT_ONCE - 1;

    my ($prompt, $cached) = (0, 0);

    for (map { [ split ' ', <$_> ] } @pipes) {
        $prompt += $_->[0];
        $cached += $_->[1];
    }

    return ($prompt, $cached);
}

for my $how (qw(round_robin kv_cache events)) {
    my ($policy, $upstream) = @{$policy{$how}};

    # own prompts, which evict those of earlier runs

    my @prompts = map { words(BYTES, ++$seed) } 1 .. PROMPTS;
    my @share;

    $t = Vllm->new();
    $t->{vars}{"E$_"} = $e[$_] for 0, 1;
    $t->{fleet} = \@e;
    $t->{vars}{POLICY} = $policy;
    $t->forget();
    $t->front($upstream, 'proxy_set_header X-Session-ID $request_id;');

    for my $port (@e) {
        ok(wait_for(sub { $t->peer('vllm', $port)->{engine}{capacity_tokens} }),
           "$how: the capacity of GPU memory is reported");
    }

    srand(1);

    for my $round (0 .. ROUNDS - 1) {
        my ($prompt, $cached) = ask_all(shuffle @prompts);

        ok($t->idle(), "$how, round $round: the counters are back at zero");
        push @share, Vllm::ratio($cached, $prompt);
        $computed{$how} += $prompt - $cached if $round;
    }

    my $cache = $t->cache();
    my $decisions = $t->status()->{upstreams}{vllm}{decisions};
    my %figures = (cached => \@share, computed => $computed{$how},
                   decisions => { map { $_ => $decisions->{$_} }
                                  grep { $decisions->{$_} } keys %$decisions },
                   predicted => $cache->{predicted_tokens},
                   delivered => $cache->{delivered_tokens});

    note("$how: " . JSON::PP->new->canonical->encode(\%figures));
    Vllm::figure("tiers_$how" => \%figures);

    if ($how ne 'round_robin') {
        cmp_ok($share[-1], '>=', 0.95, "$how: cached in the last round");
        cmp_ok($computed{$how}, '<=', 0.5 * $computed{round_robin},
               "$how: computed tokens, of those with round robin");
        is($cache->{flushes_usage}, 0, "$how: no server is assumed to have restarted");
    }

    $t->stop();
}

$t->done();
