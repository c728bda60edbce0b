#!/usr/bin/perl

# Requests whose prompt does not stay in the KV cache: they update nothing, get
# no prediction, count in no share, delay no other, and are routed by load.
# Requests that skip the cache look-up update the index and get no prediction.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

my @e = $t->engines(2, '--hardware', 'none', '--model', 'm',
                    '--enable-prompt-tokens-details');
$t->backend("B$_") for 0 .. 1;

$t->conf(<<'EOF')->run();
    %%LOG%%
    kvroute_zone zone=z:4m;
    kvroute_zone zone=y:4m;

    upstream e { zone e 64k; kvroute kv_cache zone=z;
                 server 127.0.0.1:%%E0%%; server 127.0.0.1:%%E1%% down; }
    upstream b { zone b 64k; kvroute kv_cache zone=y;
                 server 127.0.0.1:%%B0%%; server 127.0.0.1:%%B1%%; }
    upstream q { zone q 64k; kvroute kv_cache zone=y;
                 kvroute_queue max=9 timeout=1h;
                 server 127.0.0.1:%%B0%% max_conns=1;
                 server 127.0.0.1:%%B1%% max_conns=1; }

    client_body_buffer_size 1m;
    client_max_body_size 8m;

    location /v1/ { proxy_pass http://e; }
    location /b/ { proxy_pass http://b/; }
    location /l/ { kvroute_policy least_request;
                   proxy_pass http://b/; }
    location /s/ { kvroute_policy sticky key=auto; proxy_pass http://b/; }
    location /q/ { proxy_pass http://q/; }
    location = /kvroute/json { kvroute_status json; access_log off; }
EOF

my $n = 0;

sub ask {
    my ($path, $body) = @_;

    my $r = $t->post("$path?n=" . ++$n, $body);

    return { %{$t->receipt($n)}, http => $r->{status} };
}

sub peer { return $t->peer('e', $e[0]); }

sub sum {
    my ($up, $key) = @_;
    my $sum = 0;

    $sum += $_->{$key} // 0 for @{$t->status()->{upstreams}{$up}{peers}};

    return $sum;
}

# --- Claude Code's pattern: it counts each prompt before it sends it

ask('/v1/messages', chat(text(8000, 1), max_tokens => 1)) for 1 .. 3;

for my $seed (10 .. 15) {
    my $body = chat(text(8000, $seed), max_tokens => 1);
    my $c = ask('/v1/messages/count_tokens', $body);

    is("$c->{http} $c->{prompt} $c->{matched}", '200 - -',
       'a count: no prompt');
    is(ask('/v1/messages', $body)->{matched}, 0,
       'a counted prompt is not cached');
}

{
    my $c = peer()->{cache};
    is("$c->{missed} $c->{flushes_usage}", '0 0', 'no miss is assumed');
}

cmp_ok(ask('/v1/messages', chat(text(8000, 1), max_tokens => 1))->{matched},
       '>', 7000, 'and nothing is removed');

# --- all such endpoints, with bodies of prompts

for my $path ('/tokenize', '/detokenize', '/v1/chat/completions/render',
              '/v1/messages/render', '/v1/responses/input_tokens',
              '/apply-template', '/v1/embeddings', '/v1/rerank', '/score',
              '/classify', '/pooling', '/v1/moderations', '/encode')
{
    my $body = chat(text(6000, 100 + $n));
    my $before = sum('b', 'prompt_bytes');
    my $r = ask("/b$path", $body);

    is("$r->{http} $r->{reason} $r->{prompt}", '200 load -', "$path: by load");
    is(sum('b', 'prompt_bytes'), $before, "$path: counts in no share");
    is(ask('/b/v1/chat/completions', $body)->{matched}, 0,
       "$path: not learned");
}

is(ask("/$_/tokenize", chat('x'))->{reason}, 'load', "$_: by load")
    for qw(l q);
is(ask('/b/v1/chat/completions/x', chat(text(6000, 200)))->{reason}, 'cold',
   'an unknown path is a prompt');

# --- requests in flight that delay no prompt

for my $uri ('/b/v1/messages/count_tokens', '/b/tokenize', '/l/v1/embeddings',
             '/s/v1/rerank', '/q/v1/messages/count_tokens')
{
    my $go = $t->hold(1, "$uri?n=" . ++$n, chat(text(500_000, 300)));
    my ($up) = $uri =~ /^.q/ ? 'q' : 'b';

    is(join(' ', map { sum($up, $_) } qw(active_all pending_all
                                         unanswered_all)),
       '1 0 0', "$uri: in flight, without a prefill");
    $go->();
}

ok($t->idle(), 'the counters are back at zero');

# their time is not a time to first token

{
    my $before = sum('b', 'ttft_count');

    ask('/b/tokenize', chat('x'));
    $t->get('/b/v1/models');
    is(sum('b', 'ttft_count'), $before, 'no first token');
    ask('/b/v1/chat/completions', chat('x'));
    is(sum('b', 'ttft_count'), $before + 1, 'the first token of a prompt');
}

# --- by load: not to the busy server, although it has the prompt

{
    my $go = $t->hold(1, '/b/v1/chat/completions?n=' . ++$n,
                      chat(text(50_000, 301)));
    my ($p) = grep { $_->{active_all} }
              @{$t->status()->{upstreams}{b}{peers}};

    for (1 .. 4) {
        my $c = ask('/b/tokenize', chat(text(50_000, 301)));
        isnt($c->{peer}, $p->{server}, 'to the server with less load');
    }

    $go->();
}

# --- computed again although cached: no prediction, but cached afterwards

sub missed { return peer()->{cache}{missed}; }

for my $case ([ '/v1/completions', prompt_logprobs => 0 ],
              [ '/v1/completions', echo => JSON::PP::true, logprobs => 1 ],
              [ '/v1/chat/completions', prompt_logprobs => 1 ],
              [ '/v1/chat/completions', echo => JSON::PP::true ])
{
    my ($path, @more) = @$case;
    my $name = "$path $more[0]";
    my $body = sub {
        my ($seed, @more) = @_;
        return $path =~ /chat/
            ? chat(text(8000, $seed), max_tokens => 1, @more)
            : JSON::PP::encode_json({ model => 'm', max_tokens => 1,
                                      prompt => text(8000, $seed), @more });
    };

    # an eval harness: known prefixes, each computed again

    for my $seed (500 .. 504) {
        ask($path, $body->($seed));
        is(ask($path, $body->($seed, @more))->{matched}, 0,
           "$name: no prediction");
    }

    is(missed() . ' ' . peer()->{cache}{flushes_usage}, '0 0',
       "$name: no miss");
    cmp_ok(ask($path, $body->(500))->{matched}, '>', 7000,
           "$name: cached prompts stay known");

    # learned by such a request alone

    my $seed = 600 + $n;

    ask($path, $body->($seed, @more));
    cmp_ok(ask($path, $body->($seed))->{matched}, '>', 7000,
           "$name: the prompt is cached");
}

is(missed(), 0, 'predictions were right');

# --- Several replies of one prompt: the last one finds the prompt that the first one
# computed, and reports it.  This says nothing about the cache before.

sub counts { return join ' ', map { peer()->{cache}{$_} } qw(responses delivered_tokens); }

for my $case ([ '/v1/chat/completions', n => 2 ],
              [ '/v1/completions', n => 2 ])
{
    my ($path, @more) = @$case;
    my $before = counts();
    my $text = text(8000, 650 + $n);
    my $r = $t->post("$path?n=" . ++$n, $path =~ /chat/
                     ? chat($text, @more)
                     : JSON::PP::encode_json({ model => 'm', prompt => $text,
                                               max_tokens => 2, @more }));

    like($r->{body}, qr/"cached_tokens":[12]\d\d\d\b/, "$path, n of 2: found by the second");
    $t->receipt($n);
    ok($t->idle(), "$path, n of 2: ended");
    is(counts(), $before, "$path, n of 2: not counted");
}

# --- a prompt cut to its last tokens has other bytes per token, and no prefix

{
    my $bytes = sub {
        return peer()->{cache}{bytes_per_token};
    };
    my $before = $bytes->();

    for (1 .. 2) {
        my $r = ask('/v1/completions',
                    JSON::PP::encode_json({ model => 'm', max_tokens => 1,
                                            prompt => text(200_000, 700),
                                            truncate_prompt_tokens => 1000 }));

        is("$r->{http} $r->{prompt} $r->{matched}", '200 4000 0',
           'counts with the rest of it');
    }

    is($bytes->(), $before, 'bytes per token stay');
}

ok($t->idle(), 'the counters are back at zero');

$t->done();
