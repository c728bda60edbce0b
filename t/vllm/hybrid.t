#!/usr/bin/perl

# A hybrid model: Qwen3-Next with three gated delta networks and one attention layer, random
# weights.  vLLM keeps recurrent states at few positions, so a part of a common prefix is
# computed again, and repeated prompts resume at a multiple of a block.  kvroute learns the
# block from cached tokens, reports it, and assumes no restart after a miss.  The figures go
# to build/vllm.json.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../lib";
use File::Copy qw(copy);
use File::Path qw(make_path);
use JSON::PP;
use Vllm;

use constant { COMMON => 8000, PROMPTS => 24 };

my $folder = ($ENV{BUILD} || "$FindBin::Bin/../../build") . '/vllm';

model("$folder/model", "$folder/hybrid");

my $t = Vllm->new();
my @e = $t->ports(2);

$t->{model} = 'hybrid';
$t->{vars}{"E$_"} = $e[$_] for 0, 1;
$t->{fleet} = \@e;

$t->server(@e, [ '--load-format', 'dummy', '--enable-prefix-caching',
                 '--kv-cache-memory-bytes', 512 << 20 ]);
$t->ready($e[0]);
$t->front('kvroute_probe interval=500ms timeout=5s;');

wait_for(sub { $t->peer('vllm', $_)->{engine}{capacity_tokens} }) for @e;

my $common = words(COMMON, 1);
my @prompts = map { $common . words(1500 + 250 * $_, 100 + $_) } 1 .. PROMPTS;
my %first = ask_all(@prompts);
my $before = $t->cache();

# the same prompts again, then longer ones: each resumes where a state was kept

my %again = ask_all(@prompts);
my %more = ask_all(map { $_ . words(4000, 500) } @prompts);

ok($t->idle(), 'the counters are back at zero');

my $cache = $t->cache();
my $says = $t->status()->{upstreams}{vllm}{resumes};
my $scrape = $t->get('/metrics', port => $e[0])->{body};
my ($block) = $scrape =~ /cache_config_info\{[^}]*[{,]block_size="(\d+)"/;

my %figures = (first => \%first, again => \%again, more => \%more, block => $block,
               predicted => $cache->{predicted_tokens} - $before->{predicted_tokens},
               delivered => $cache->{delivered_tokens} - $before->{delivered_tokens});

note(JSON::PP->new->canonical->encode({ %figures, resumes => $says }));
Vllm::figure(hybrid => \%figures);

is($cache->{flushes_usage}, 0, 'no server is assumed to have restarted');
cmp_ok($again{cached}, '>', $first{cached}, 'repeated prompts resume');
cmp_ok(abs($figures{predicted} / $figures{delivered} - 1), '<', 0.1,
       'predicted over delivered, once the block is learned');
is($says->{tokens}, $block, "it resumes at multiples of vLLM's block");
like($says->{text},
     qr/^this model resumes at multiples of $block tokens; \d+ % of /, 'in words');

$t->stop();
$t->done();


# sends all of these, one by one; returns the tokens of the prompts, and how many were
# cached

sub ask_all {
    my %sum = (prompt => 0, cached => 0);

    for my $prompt (@_) {
        my $said = usage($t->post('/v1/completions', encode_json({
            model => 'm', prompt => $prompt, max_tokens => 4, ignore_eos => JSON::PP::true
        }))->{body});

        $sum{$_} += $said->{$_} for qw(prompt cached);
    }

    return %sum;
}


# a model without weights: the tokenizer is that of the other one

sub model {
    my ($from, $to) = @_;

    make_path($to);

    copy("$from/$_", "$to/$_") or die "$_: $!"
        for qw(tokenizer.json tokenizer_config.json generation_config.json);

    my $config = decode_json(Kvroute::slurp("$from/config.json"));

    my %hybrid = (
        architectures => ['Qwen3NextForCausalLM'], model_type => 'qwen3_next',
        num_hidden_layers => 4, full_attention_interval => 4,
        layer_types => [ ('linear_attention') x 3, 'full_attention' ],
        num_attention_heads => 4, num_key_value_heads => 1, head_dim => 64,
        linear_conv_kernel_dim => 4, linear_key_head_dim => 128,
        linear_value_head_dim => 128, linear_num_key_heads => 1,
        linear_num_value_heads => 2, num_experts => 4, num_experts_per_tok => 2,
        moe_intermediate_size => 256, shared_expert_intermediate_size => 256,
        decoder_sparse_step => 1, mlp_only_layers => [ 0 .. 2 ],
        partial_rotary_factor => 0.25,
    );

    Kvroute::write_file("$to/config.json", encode_json({ %$config, %hybrid }));
}
