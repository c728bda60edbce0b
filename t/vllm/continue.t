#!/usr/bin/perl

# kvroute_continue with real vLLM: a server is emptied in the middle of its answers, which
# the others continue.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../lib";
use JSON::PP;
use Vllm;

my $t = Vllm->new();
my @e = $t->fleet();

$t->front('kvroute_eject off;', <<'EOC');
kvroute_continue on;
            add_header X-Peer $kvroute_peer;
            location /api/ { kvroute_api write=on; }
EOC

my $tokens = 200;

sub body {
    my ($kind, $n) = @_;

    return encode_json({ model => 'm', stream => JSON::PP::true, temperature => 0,
        max_tokens => $tokens, stream_options => { include_usage => JSON::PP::true },
        $kind eq 'chat' ? (messages => [{ role => 'user', content => words(300, $n) }])
                        : (prompt => words(300, $n)) });
}

sub answer {
    my ($r) = @_;

    my %a = (text => '', roles => 0, done => 0, bad => $r->{complete} ? 0 : 1);

    for ($r->{body} =~ /^data: (.*)$/mg) {
        $a{done}++, next if $_ eq '[DONE]';
        my $e = eval { decode_json($_) };
        $a{bad}++, next if !$e || $e->{error};
        my $c = $e->{choices}[0];
        $a{id}{$e->{id}} = 1;
        $a{text} .= $c->{delta}{content} // $c->{text} // '' if $c;
        $a{roles}++ if $c && $c->{delta}{role};
        $a{tokens} = $e->{usage}{completion_tokens} if $e->{usage};
        $a{finish} = $c->{finish_reason} if $c && $c->{finish_reason};
    }

    return \%a;
}

my %path = (chat => '/v1/chat/completions', text => '/v1/completions');
my ($same, $all) = (0, 0);

for my $kind (qw(chat text)) {
    my @whole = map { answer($t->post($path{$kind}, body($kind, $_))) } 1 .. 12;

    is_deeply([map { "$_->{done} $_->{bad} $_->{tokens}" } @whole],
              [("1 0 $tokens") x 12], "$kind: whole");

    my @s = map { $t->start("POST $path{$kind}", body($kind, $_)) } 1 .. 12;

    $t->read_until($_, qr/(?:(?:content|text)":"[^"].*?){20}/s) for @s;

    my ($busy) = sort { $b->{active} <=> $a->{active} } map { $t->peer('vllm', $_) } @e;
    note("$busy->{name} has $busy->{active}");

    is($t->post("/api/drain?peer=$busy->{name}&move=1&rate=1000", '')->{status}, 200,
       "$kind: drained");

    my @a = map { answer($t->finish($_)) } @s;

    is_deeply([map { join ' ', $_->{done}, $_->{bad} ? 1 : 0, $_->{tokens}, $_->{finish},
                     scalar keys %{$_->{id}}, $_->{roles} } @a],
              [("1 0 $tokens length 1 " . ($kind eq 'chat' ? 1 : 0)) x 12],
              "$kind: each is whole, with one id");

    my $moved = $t->status()->{upstreams}{vllm}{continued}{moved};
    cmp_ok($moved, '>', 0, "$kind: moved $moved");

    $same += grep { $a[$_]{text} eq $whole[$_]{text} } 0 .. 11;
    $all += 12;

    $t->post("/api/undrain?peer=$busy->{name}", '');
}

note("$same of $all have the same text");
Vllm::figure(continue => { answers => $all, same_text => $same,
                           moved => $t->status()->{upstreams}{vllm}{continued}{moved} });

$t->done();
