#!/usr/bin/perl

# Tokens in SGLang's replies: chats, completions, messages and its own /generate,
# streamed or not; and turns go to the server with their prompt.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../lib";
use JSON::PP;
use Sglang;

my $t = Sglang->new();
my @e = $t->fleet();
my $yes = $JSON::PP::true;
my $seed = 0;

$t->front('kvroute_probe interval=500ms timeout=5s;');

sub chat_of {
    return (messages => [ { role => 'user', content => words(4000, ++$seed) } ],
            max_tokens => 4);
}

# a whole answer and a stream of each

my %usage = (stream => $yes, stream_options => { include_usage => $yes });

my @kinds = (
    [ '/v1/chat/completions', sub { return (model => 'm', chat_of()) } ],
    [ '/v1/chat/completions', sub { return (model => 'm', %usage, chat_of()) } ],
    [ '/v1/completions', sub { return (model => 'm', max_tokens => 4,
                                       prompt => words(4000, ++$seed)) } ],
    [ '/v1/completions', sub { return (model => 'm', max_tokens => 4, %usage,
                                       prompt => words(4000, ++$seed)) } ],
    [ '/v1/messages', sub { return (model => 'm', chat_of()) } ],
    [ '/v1/messages', sub { return (model => 'm', stream => $yes, chat_of()) } ],
    [ '/v1/responses', sub { return (model => 'm', max_output_tokens => 8,
                                     input => words(4000, ++$seed)) } ],
    [ '/v1/responses', sub { return (model => 'm', max_output_tokens => 8,
                                     stream => $yes, input => words(4000, ++$seed)) } ],
    [ '/generate', sub { return (text => words(4000, ++$seed),
                                 sampling_params => { max_new_tokens => 4 }) } ],
    [ '/generate', sub { return (text => words(4000, ++$seed), stream => $yes,
                                 sampling_params => { max_new_tokens => 4 }) } ],
);

for my $kind (@kinds) {
    my ($uri, $make) = @$kind;
    my %body = $make->();
    my $name = $uri . ($body{stream} ? ', streamed' : '');
    my $cold = $t->ask($uri, \%body);
    my $warm = $t->ask($uri, \%body);

    is($cold->{status}, 200, "$name: served") or diag($cold->{body});
    note("$name: " . JSON::PP->new->canonical->encode(
        { map { $_ => $warm->{$_} } qw(said logged predicted) }));

    cmp_ok($warm->{logged}{prompt} // 0, '>', 500, "$name: tokens of the prompt");
    is($warm->{logged}{prompt}, $warm->{said}{prompt}, "$name: as reported");
    cmp_ok($warm->{logged}{reply}, '>=', 4, "$name: tokens of the reply");
    is($warm->{logged}{reply}, $warm->{said}{reply}, "$name: as reported");
    cmp_ok($cold->{logged}{cached} // 0, '<', 100, "$name: new");
    cmp_ok($warm->{logged}{cached} // 0, '>', 500, "$name: cached tokens");
    is($warm->{logged}{cached}, $warm->{said}{cached}, "$name: as reported");
    is($warm->{receipt}{peer}, $cold->{receipt}{peer},
       "$name: at the server with its prompt");
    cmp_ok(abs($warm->{predicted} / ($warm->{logged}{cached} || 1) - 1), '<', 0.1,
           "$name: as predicted");
}


# conversations, with room for all

my $f = $t->measure(sessions => 8, at_once => 4, turns => 4,
                    prompt => 3000, more => 800, reply => 16);

Vllm::figure(plain => $f);
note(JSON::PP->new->canonical->encode($f));

is($f->{errors}, 0, 'conversations: no errors');
is($f->{flushes}, 0, 'conversations: no restart was assumed');
is($f->{delivered_tokens}, $f->{cached_tokens},
   'conversations: kvroute counts what clients get');
cmp_ok(abs($f->{predicted_over_delivered} - 1), '<', 0.05,
       "conversations: predicted over delivered: $f->{predicted_over_delivered}");
cmp_ok($f->{cached_of_ideal}, '>', 0.9,
       'conversations: most of what they sent was cached');

$t->done();
