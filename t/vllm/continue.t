#!/usr/bin/perl

# kvroute_continue with real vLLM: a server is killed in the middle of many answers, then
# another one.  Each answer equals that of a single server.  With usage=on nginx knows the
# tokens of all streams, and clients receive the bytes of the single server.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../lib";
use JSON::PP;
use Vllm;

my $yes = $JSON::PP::true;
my $tokens = 200;

my $t = Vllm->new();
my @e = $t->ports(3);

# with bfloat16 a text depends on the other requests of the batch

$t->server($_, [ '--dtype', 'float32', '--kv-cache-memory-bytes', 64 << 20 ]) for @e;
$t->ready($_) for @e;

$t->{vars}{"E$_"} = $e[$_] for 0 .. 2;
$t->{vars}{POLICY} = 'round_robin';
$t->{vars}{HTTP} = 'log_format continue "$arg_n $kvroute_continued $kvroute_cut";'
    . 'log_format usage "$arg_n $kvroute_prompt_tokens $kvroute_completion_tokens";';
$t->front('kvroute_eject off;', 'kvroute_continue on; add_header X-Peer $kvroute_peer; '
          . "access_log $t->{dir}/continue.log continue;"
          . 'location /usage/ { kvroute_continue 0 usage=on; proxy_pass http://vllm/;'
          . "access_log $t->{dir}/usage.log usage; }");

my %paths = (chat => '/v1/chat/completions', text => '/v1/completions',
             messages => '/v1/messages');
my $seed = 0;

sub request_of {
    my ($kind, %more) = @_;

    my $words = words(1500, ++$seed);

    return JSON::PP->new->canonical->encode({
        model => 'm', stream => $yes, max_tokens => $tokens, temperature => 0,
        $kind eq 'text' ? (prompt => $words)
                        : (messages => [ { role => 'user', content => $words } ]),
        $kind eq 'messages' ? () : (stream_options => { include_usage => $yes }), %more });
}

sub server_of {
    my ($s) = @_;

    my ($port) = $t->read_until($s, qr/\r\n\r\n/) =~ /^X-Peer: .*:(\d+)\r\n/m;

    return $port;
}

# Begins answers, and kills a server that serves some of them; returns these, and how
# they ended

sub killed {
    my ($port, @kinds) = @_;

    my @rows = map { { n => "$port-$_", kind => $kinds[$_],
                       body => request_of($kinds[$_]) } } 0 .. $#kinds;

    for my $row (@rows) {
        $row->{s} = $t->start("POST $paths{$row->{kind}}?n=$row->{n}", $row->{body});
        $row->{port} = server_of($row->{s});
    }

    my @mine = grep { $_->{port} == $port } @rows;

    # each answer has some words, and none has ended

    $t->read_until($_->{s}, qr/(?:"(?:content|text)":"[^"].*?){20}/s) for @mine;
    $t->end($port, 'KILL');

    for my $row (@rows) {
        my $r = $t->finish($row->{s});

        $row->{said} = usage($r->{body});
        $row->{done} = () = $r->{body} =~ /^data: \[DONE\]$/mg;
        $row->{error} = () = $r->{body} =~ /^(?:event: error|data: \{"error")/mg;
        $row->{complete} = $r->{complete};

        ok(wait_for(sub {
            ($row->{log}) = $t->access_log('continue.log') =~ /^$row->{n} (.*)$/m;
        }), "$row->{n}: logged");
    }

    return @rows;
}

# the bytes of an answer without what differs between answers; vLLM's fingerprint is in
# the last event, so it is removed with that

sub plain {
    my ($r) = @_;

    return $r->{body} =~ s/"id":"[^"]*"|"created":\d+|"cached_tokens":\d+//gr
                      =~ s/,"system_fingerprint":"[^"]*"//gr;
}

for my $kind (qw(chat text)) {
    for my $asks (0, 1) {
        my $name = "usage=on, $kind, asked: $asks";
        my $told = request_of($kind, max_tokens => 10);
        my $body = $asks ? $told : $told =~ s/"stream_options":\{.*?\},//r;
        my ($whole, $r);

        # a delayed event has two tokens

        for my $try (1 .. 10) {
            $whole = $t->post($paths{$kind}, $body, port => $e[2]);
            $r = $t->post("/usage$paths{$kind}?n=$kind$asks", $body);
            last if plain($r) eq plain($whole);
        }

        is(plain($r), plain($whole), "$name: the bytes of the server alone");
        is(scalar(() = $r->{body} =~ /"usage":\{/g), $asks,
           "$name: the usage is passed on if asked for");

        my $said = usage($t->post($paths{$kind}, $told, port => $e[2])->{body});

        ok(wait_for(sub {
            $t->access_log('usage.log') =~ /^$kind$asks $said->{prompt} $said->{reply}$/m
        }), "$name: nginx knows the tokens");
    }
}

my ($answers, $same, $continued) = (0, 0, 0);

for my $kill (0, 1) {
    my @rows = killed($e[$kill], (qw(chat text)) x 9, $kill ? () : ('messages') x 3);
    my @broken = grep { $_->{port} == $e[$kill] } @rows;

    cmp_ok(scalar @broken, '>=', 6, "server $kill had some of the answers");

    # the remaining server, without nginx

    $_->{s} = $t->start("POST $paths{$_->{kind}}", $_->{body}, port => $e[2]) for @rows;

    for my $row (@rows) {
        my $mine = $row->{port} == $e[$kill];
        my $whole = usage($t->finish($row->{s})->{body});

        ok($row->{complete}, "$row->{n}: complete");

        if ($row->{kind} eq 'messages') {
            is($row->{error}, $mine ? 1 : 0, "$row->{n}: messages end with an error event");
            is($row->{log}, $mine ? '0 api' : '0 -', "$row->{n}: and are not continued");
            next;
        }

        is("$row->{done} $row->{error}", '1 0', "$row->{n}: has its last event");
        is($row->{said}{reply}, $tokens, "$row->{n}: as many tokens as were asked for");
        like($row->{log}, $mine ? qr/^1 -$/ : qr/^[01] -$/, "$row->{n}: continued");

        # an event with two tokens counts as one: the continuation has one more

        my $more = $row->{said}{prompt} - $whole->{prompt};
        ok($mine ? $more >= 0 && $more <= 5 : $more == 0,
           "$row->{n}: tokens of its prompt") or diag($more);

        my $text = $row->{said}{text};
        $text = substr $text, 0, length $whole->{text} if $more;

        $answers++;
        $continued++ if $mine;
        $same++ if $text eq $whole->{text};
        diag("$row->{n} $row->{kind} " . ($mine ? 'continued' : 'whole') . " differs:\n"
             . "$text\n$whole->{text}")
            if $text ne $whole->{text};
    }
}

is($same, $answers, "the same text, $continued of $answers answers continued");
Vllm::figure(continue => { answers => $answers, continued => $continued, same_text => $same });

$t->done();
