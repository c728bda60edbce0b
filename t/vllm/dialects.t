#!/usr/bin/perl

# vLLM's endpoints: the second turn of a conversation, in each dialect, streamed or not,
# goes to the server of the first; its tokens are read; the predicted tokens are those
# delivered.  Requests that compute nothing, or do not use the cache, are not learned and
# have no prediction.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../lib";
use JSON::PP;
use Vllm;

my $t = Vllm->new();

$t->fleet();
$t->front();

my $block = 32;         # of the servers' caches, in tokens
my $seed = 0;

my ($yes, $no) = ($JSON::PP::true, $JSON::PP::false);

# Each dialect: the path, and a function that makes a request of the texts of user
# and model in turn.

sub messages {
    my @texts = @_;
    my @role = qw(user assistant);

    return [ map { { role => $role[$_ % 2], content => $texts[$_] } }
             0 .. $#texts ];
}

sub parts {
    my ($messages) = @_;

    $_->{content} = [ { type => 'text', text => $_->{content} } ] for @$messages;

    return $messages;
}

my $tool = { name => 'search', description => 'find a line',
             parameters => { type => 'object', properties => {} } };

my %dialect = (
    'chat' => [ '/v1/chat/completions', sub {
        return (messages => messages(@_)) } ],
    'chat, content in parts' => [ '/v1/chat/completions', sub {
        return (messages => parts(messages(@_))) } ],
    'chat, tools' => [ '/v1/chat/completions', sub {
        return (messages => messages(@_),
                tools => [ { type => 'function', function => $tool } ]) } ],
    'chat, n of 2' => [ '/v1/chat/completions', sub {
        return (messages => messages(@_), n => 2, temperature => 1) } ],
    'chat, cache_salt' => [ '/v1/chat/completions', sub {
        return (messages => messages(@_), cache_salt => 'tenant a') } ],
    'completions' => [ '/v1/completions', sub {
        return (prompt => join '', @_) } ],
    'messages' => [ '/v1/messages', sub {
        return (messages => messages(@_), system => 'You are a clerk.') } ],
    'responses' => [ '/v1/responses', sub {
        return (input => messages(@_), instructions => 'You are a clerk.') } ],
);

for my $name (sort keys %dialect) {
    my ($uri, $make) = @{$dialect{$name}};

    for my $stream (0, 1) {
        my $what = $stream ? "$name, a stream" : $name;
        my $limit = $uri =~ /responses/ ? 'max_output_tokens' : 'max_tokens';

        my @more = (model => 'm', temperature => 0, $limit => 20);
        push @more, stream => $yes if $stream;
        push @more, stream_options => { include_usage => $yes }
            if $stream && $uri =~ /completions/;

        my @texts = (words(4000, ++$seed));
        my $r = $t->ask($uri, { @more, $make->(@texts) });

        is($r->{status}, 200, "$what: served") or diag($r->{body});
        tokens($r, "$what, first turn");
        is($r->{said}{cached}, 0, "$what, first turn: 0 cached tokens are reported")
            unless $name =~ /n of 2/;
        my $first = $r->{said}{prompt};
        my $peer = $r->{receipt}{peer};

        push @texts, $r->{said}{text}, words(600, ++$seed);
        $r = $t->ask($uri, { @more, $make->(@texts) });

        tokens($r, "$what, second turn");
        is($r->{receipt}{peer}, $peer, "$what: the second turn goes to the same server");
        cmp_ok($r->{said}{cached}, '>=', $first - $block,
               "$what: the first turn is cached there");
        near($r, $what) unless $name =~ /n of 2/;
    }
}


# of several replies the last one reports as cached the prompt of the first

sub counts {
    my $cache = $t->cache();

    return "$cache->{responses} $cache->{delivered_tokens}";
}

my $counts = counts();
my $r = $t->ask('/v1/chat/completions', { model => 'm', max_tokens => 4, n => 2,
                                          messages => messages(words(4000, ++$seed)) });

cmp_ok($r->{said}{cached}, '>=', $r->{said}{prompt} - 2 * $block,
       'n of 2, not cached: reported as cached');
is(counts(), $counts, 'n of 2: not counted');


# the variables have the values of the response

sub tokens {
    my ($r, $what) = @_;

    my %said = map { ($_ => $r->{said}{$_}) } qw(prompt cached reply);

    is_deeply($r->{logged}, \%said, "$what: tokens are read");
}


# Both sides count whole blocks, and kvroute counts tokens by bytes: some blocks
# of difference are possible.

sub near {
    my ($r, $what) = @_;

    cmp_ok(abs($r->{predicted} - $r->{said}{cached}), '<=', 4 * $block,
           "$what: $r->{predicted} tokens predicted, $r->{said}{cached} delivered");
}


# token ids, without text

my @ids = map { 300 + $_ * 7 % 5000 + $$ % 100 } 1 .. 900;

$r = $t->ask('/v1/completions', { model => 'm', prompt => \@ids, max_tokens => 2 });
my $peer = $r->{receipt}{peer};

is($r->{said}{prompt}, 900, 'token ids: served');

push @ids, 1 .. 50;
$r = $t->ask('/v1/completions', { model => 'm', prompt => \@ids, max_tokens => 2 });

is($r->{receipt}{peer}, $peer, 'token ids: the same prefix goes to the same server');
cmp_ok($r->{said}{cached}, '>=', 900 - $block, 'token ids: it is cached there');
near($r, 'token ids');


# a list of prompts: vLLM reports cached tokens of the last prompt only, which is
# not counted

my @list = map { words(2000, ++$seed) } 1 .. 3;

$r = $t->ask('/v1/completions', { model => 'm', prompt => \@list, max_tokens => 2 });
is($r->{status}, 200, 'a list of prompts: served');

$counts = counts();
$peer = $r->{receipt}{peer};
$r = $t->ask('/v1/completions', { model => 'm', prompt => \@list, max_tokens => 2 });

is($r->{receipt}{peer}, $peer, 'a list of prompts: goes to the same server');
cmp_ok($r->{said}{cached}, '<', $r->{said}{prompt} / 2,
       'a list of prompts: vLLM reports one only');
is(counts(), $counts, 'a list of prompts: is not counted');


# salts keep conversations apart, in the engine and in the index

my @salted = (model => 'm', max_tokens => 2,
              messages => messages(words(4000, ++$seed)));

$t->ask('/v1/chat/completions', { @salted, cache_salt => 'a' });
$r = $t->ask('/v1/chat/completions', { @salted, cache_salt => 'b' });

is("$r->{predicted} $r->{said}{cached}", '0 0',
   'another salt: nothing is cached or predicted');


# responses: a request with the id of one goes to the server that made it

my @texts = (words(4000, ++$seed), words(600, ++$seed));

$r = $t->ask('/v1/responses', { model => 'm', input => $texts[0],
                                max_output_tokens => 20 });
my ($id, $first, $status) = ($r->{json}{id}, $r->{said}{prompt}, 0);
$peer = $r->{receipt}{peer};

like($id, qr/^resp_/, 'responses: with an id');

for (1 .. 4) {
    my $got = $t->get("/v1/responses/$id");
    $status++ if $got->{status} == 200 && $got->{body} =~ /\Q$id\E/;
}

is($status, 4, 'responses: fetched by id, four times');

$r = $t->ask('/v1/responses', { model => 'm', input => $texts[1],
                                max_output_tokens => 20,
                                previous_response_id => $id });

is($r->{status}, 200, 'previous_response_id: known to the server') or diag($r->{body});
is($r->{receipt}{peer}, $peer, 'previous_response_id: the same server');
cmp_ok($r->{said}{cached}, '>=', $first - $block,
       'previous_response_id: the prompt is cached');

$r = $t->ask('/v1/responses', { model => 'm', input => words(500, ++$seed),
                                background => $yes, max_output_tokens => 4 });
$id = $r->{json}{id};

is($r->{json}{status}, 'queued', 'background: queued') or diag($r->{body});

wait_for(sub {
    my $got = $t->get("/v1/responses/$id");
    $status = $got->{status};
    return $status != 200 || $got->{body} =~ /"status":"(?:completed|incomplete)"/;
});

is($status, 200, 'background: polled until it is complete');

$r = $t->request("POST /v1/responses/$id/cancel", '{}');
isnt($r->{status}, 404, 'background: the cancel request goes to the same server')
    or diag($r->{body});


# Requests that compute nothing: sent before each turn, as some clients do, they are
# not learned.

for my $light ('/v1/messages/count_tokens', '/tokenize') {
    my $turns = 0;

    for my $n (1 .. 4) {
        my $body = { model => 'm', max_tokens => 2,
                     messages => messages(words(4000, ++$seed)) };
        my $count = { %$body };

        delete $count->{max_tokens};
        $r = $t->ask($light, $count);
        is($r->{status}, 200, "$light: served") if $n == 1;
        is($r->{receipt}{reason}, 'load', "$light: by load") if $n == 1;

        $r = $t->ask('/v1/messages', $body);
        $turns++ if $r->{predicted} == 0;
    }

    is($turns, 4, "$light: nothing is predicted for the next turn");
}

for my $render ('/v1/chat/completions/render', '/v1/completions/render') {
    my $status = $t->ask($render, { model => 'm', messages => messages('a'),
                                    prompt => 'a' })->{status};
    is($status, 403, "$render: refused, unless --enable-scale-out");
}


# Requests that do not use the cache: nothing is predicted, three misses in a
# row change nothing, and the server caches the computed prompt.

for my $case ([ '/v1/completions', prompt_logprobs => 0 ],
              [ '/v1/chat/completions', prompt_logprobs => 0 ],
              [ '/v1/completions', echo => $yes, logprobs => 0 ])
{
    my ($uri, %more) = @$case;
    my $what = "$uri, " . join ' and ', sort keys %more;
    my ($predicted, $cached, $found) = (0, 0, 0);

    for my $n (1 .. 3) {
        my $body = { model => 'm', max_tokens => 2 };
        my $text = words(3000, ++$seed);

        if ($uri =~ /chat/) {
            $body->{messages} = messages($text);
        } else {
            $body->{prompt} = $text;
        }

        $t->ask($uri, $body);
        $r = $t->ask($uri, { %$body, %more });
        is($r->{status}, 200, "$what: served") or diag($r->{body});

        $predicted += $r->{predicted};
        $cached += $r->{said}{cached} // 0;

        $r = $t->ask($uri, $body);
        $found++ if $r->{said}{cached} >= $r->{said}{prompt} - 2 * $block
                    && $r->{predicted} >= $r->{said}{cached} - 4 * $block;
    }

    is("$predicted $cached", '0 0', "$what: nothing is predicted, nothing is cached");
    is($found, 3, "$what: the prompt is cached afterwards");
}


# Truncated prompts: not learned, no prediction, and no effect on the bytes of a
# token.

sub bytes_of_tokens {
    return join ' ', map { sprintf '%.1f', $_->{cache}{bytes_per_token} // 0 }
           @{$t->status()->{upstreams}{vllm}{peers}};
}

my $long = words(60_000, ++$seed);
my $bytes = bytes_of_tokens();

for (1 .. 2) {
    $r = $t->ask('/v1/completions', { model => 'm', prompt => $long,
                                      max_tokens => 2,
                                      truncate_prompt_tokens => 500 });
    is($r->{said}{prompt}, 500, 'a truncated prompt: only its last tokens')
        or diag($r->{body});
}

is($r->{predicted}, 0, 'a truncated prompt: nothing is predicted');
is(bytes_of_tokens(), $bytes, 'a truncated prompt: the bytes of a token do not change');


# a request that vLLM refuses is not learned

for my $bad ({ model => 'unknown', messages => messages(words(4000, ++$seed)) },
             { model => 'm', messages => messages(words(400_000, ++$seed)) },
             { model => 'm', messages => messages(words(4000, ++$seed)), n => -1 })
{
    $r = $t->ask('/v1/chat/completions', $bad);
    like($r->{status}, qr/^4/, "refused with $r->{status}");
    is($t->ask('/v1/chat/completions', $bad)->{receipt}{matched}, 0,
       'a refused request is not learned');
}


my $cache = $t->cache();

is($cache->{flushes_usage} + $cache->{flushes_probe}, 0,
   'no server is assumed to have lost its cache');

$t->done();
