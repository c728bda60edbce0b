#!/usr/bin/perl

# Predicted against delivered tokens: agents whose conversations grow, with a cache that
# holds them all, one that evicts, and one that preempts what it computes.  The figures
# go to build/vllm.json.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../lib";
use JSON::PP;
use Time::HiRes qw(time);
use Vllm;

my $t = Vllm->new();
my @e = $t->fleet();

$t->front('kvroute_probe interval=500ms timeout=5s;');
wait_for(sub { $t->peer('vllm', $e[-1])->{engine}{capacity_tokens} });

my $seed = 0;
my $system = words(3000, ++$seed);


# Plays conversations, so many at a time; each prompt begins with the system prompt and
# what the conversation had before, with the model's replies.  Returns for each request
# its status, tokens of the prompt, how many of them were cached, and how many of them the
# conversation had sent or got before.
#
#     sessions, at_once, turns     how many
#     prompt, more                 bytes of the first and of each further user's message
#     reply                        tokens
#     away                         others have their turns between two of one, so that
#                                  it comes back when caches have been used for more

sub play {
    my (%arg) = @_;

    my @sessions = map { {
        turn => 0,
        known => 0,
        words => ($seed += $arg{turns} + 1),
        messages => [ { role => 'system', content => $system } ],
    } } 1 .. $arg{sessions};

    my @pipes;

    for my $n (0 .. $arg{at_once} - 1) {
        my @mine = @sessions[grep { $_ % $arg{at_once} == $n } 0 .. $#sessions];
        my @turns = $arg{away} ? (@mine) x $arg{turns}
                               : map { ($_) x $arg{turns} } @mine;

        my $pid = open my $pipe, '-|';

        die "fork: $!" unless defined $pid;

        if ($pid == 0) {
            print encode_json([ map { turn($_, %arg) } @turns ]);
            close STDOUT;
            POSIX::_exit(0);
        }

        push @pipes, $pipe;
    }

    return map { @{decode_json(join '', <$_>)} } @pipes;
}


sub turn {
    my ($s, %arg) = @_;

    my $turn = $s->{turn}++;

    push @{$s->{messages}}, {
        role => 'user',
        content => words($turn ? $arg{more} : $arg{prompt}, $s->{words} + $turn)
    };

    my $r = $t->post('/v1/chat/completions', Kvroute::chat(
        $s->{messages}, max_tokens => $arg{reply}, stream => $JSON::PP::true,
        stream_options => { include_usage => $JSON::PP::true }), timeout => 600);

    my $said = usage($r->{body});
    my $row = [ $r->{status}, $said->{prompt}, $said->{cached}, $s->{known} ];

    $s->{known} = ($said->{prompt} // 0) + ($said->{reply} // 0);
    push @{$s->{messages}}, { role => 'assistant', content => $said->{text} };

    return $row;
}


sub sum {
    my ($i, @rows) = @_;

    my $sum = 0;
    $sum += $_->[$i] // 0 for @rows;

    return $sum;
}


# requests to each server

sub each_server {
    return map { $t->peer('vllm', $_)->{requests} } @e;
}


# what vLLM itself has counted, all servers together

sub counted {
    my ($name) = @_;

    my $sum = 0;
    $sum += $t->metric($_, $name) for @e;

    return $sum;
}


my @runs = (
    [ 'plain', sessions => 12, at_once => 6, turns => 5,
      prompt => 4000, more => 1000, reply => 24 ],
    [ 'evicting', sessions => 48, at_once => 12, turns => 4, away => 1,
      prompt => 8000, more => 1500, reply => 24 ],
    [ 'preempting', sessions => 64, at_once => 64, turns => 3,
      prompt => 4000, more => 1000, reply => 200 ],
);

for my $run (@runs) {
    my ($name, %arg) = @$run;

    $t->forget();

    my $before = $t->cache();
    my $preempted = counted('num_preemptions_total');
    my $hits = counted('prefix_cache_hits_total');
    my @sent = each_server();
    my $begun = time();
    my @rows = play(%arg);

    ok($t->idle(), "$name: all have ended");

    my $seconds = time() - $begun;
    my $after = $t->cache();
    my %diff = map { ($_ => $after->{$_} - $before->{$_}) } keys %$after;

    my %figures = (
        requests => scalar @rows,
        per_server => [ map { $_ - shift @sent } each_server() ],
        errors => scalar(grep { $_->[0] != 200 } @rows),
        prompt_tokens => sum(1, @rows),
        cached_tokens => sum(2, @rows),
        ideal_tokens => sum(3, @rows),
        predicted_tokens => $diff{predicted_tokens},
        delivered_tokens => $diff{delivered_tokens},
        predicted_over_delivered => ratio($diff{predicted_tokens},
                                          $diff{delivered_tokens}),
        cached_of_ideal => ratio(sum(2, @rows), sum(3, @rows)),
        preemptions => counted('num_preemptions_total') - $preempted,
        flushes => $diff{flushes_usage} + $diff{flushes_probe},
        missed => $diff{missed},
        seconds => 0 + sprintf('%.1f', $seconds),
    );

    Vllm::figure($name => \%figures);
    note("$name: " . JSON::PP->new->canonical->encode(\%figures));

    is($figures{errors}, 0, "$name: no errors");
    is($figures{flushes}, 0, "$name: nobody was taken to have restarted");
    is($figures{delivered_tokens}, $figures{cached_tokens},
       "$name: what clients were told is what kvroute counts");
    is(counted('prefix_cache_hits_total') - $hits, $figures{cached_tokens},
       "$name: and what vLLM counts") unless $figures{preemptions};

    cmp_ok(abs($figures{predicted_over_delivered} - 1), '<', 0.05,
           "$name: predicted over delivered: $figures{predicted_over_delivered}")
        if $name eq 'plain';
}


sub ratio {
    my ($a, $b) = @_;

    return 0 + sprintf '%.4f', $b ? $a / $b : 0;
}


$t->done();
