package Kvroute::Receipts;

# What was decided for which request, and whether many decisions are spread as
# they should be.
#
#     http { %%LOG%% ... }         # in the configuration
#     $t->post('/?n=a', $body);
#     $t->receipt('a')->{reason}   # policy, reason, peer, matched, ...

use strict;
use warnings;

use Test::More;

my @fields = qw(status addr policy reason peer model session prompt matched
                best cost);


# a log of receipts, by the argument "n" of the requests

sub receipts {
    my ($t) = @_;

    $t->{vars}{LOG} = "log_format receipt '\$arg_n|\$status|\$upstream_addr|"
        . join('|', map { "\$kvroute_$_" } qw(policy reason peer model session
                        prompt_bytes matched_bytes best_bytes cost))
        . "';\n    access_log $t->{dir}/access.log receipt;";
}


# the receipt of a request; it is logged when the response has been sent

sub receipt {
    my ($t, $id) = @_;
    my @values;

    Kvroute::wait_for(sub {
        my ($line) = $t->access_log() =~ /^\Q$id\E\|(.*)\n/m or return;
        @values = split /\|/, $line, -1;
    });

    my %r;
    @r{@fields} = @values;
    $r{name} = $t->name_of($r{peer});

    return \%r;
}


# the line of the access log that begins with a word: a line may be written long
# after the client has its answer, and so behind those of later requests

sub logged {
    my ($t, $id) = @_;
    my $line;

    Kvroute::wait_for(sub { ($line) = $t->access_log() =~ /^\Q$id\E (.*)$/m });

    return $line;
}


# B0, B1, .. of an address

sub name_of {
    my ($t, $address) = @_;

    my ($port) = ($address // '') =~ /:(\d+)$/ or return '-';
    my ($name) = grep { /^[BE]\d+$/ && $t->{vars}{$_} == $port }
                 keys %{$t->{vars}};

    return $name // 'other';
}


# which backend a response is from

sub from {
    my ($t, $r) = @_;

    return $r->{headers}{'x-backend'} // "status $r->{status}";
}


# posts and tells the backend

sub to {
    my ($t, $uri, $body, %headers) = @_;

    return $t->from($t->post($uri, $body, headers => \%headers));
}


# The same when nothing else is on the peers.  A client may have its response
# before its request is taken off, which the next choice may see.

sub alone {
    my ($t, @request) = @_;

    $t->idle() or die "a request was not taken off its peer\n";

    return $t->to(@request);
}


# So many requests in flight at once; calling what is returned ends them and
# gives their responses.  The body may be a list of one for each.

my $holds = 0;

sub hold {
    my ($t, $n, $uri, $body, %headers) = @_;

    my $go = 'hold' . $holds++;
    my @names = grep { /^B\d+$/ } keys %{$t->{vars}};
    my @open;

    $t->{held} ||= 0;

    # those before may have been answered and not yet been taken off

    Kvroute::wait_for(sub { ($t->load())[0] == $t->{held} });

    for my $i (0 .. $n - 1) {
        push @open, $t->start("POST $uri",
                              ref $body ? $body->[$i] : $body, headers => {
            %headers, map { ("X-$_" => "wait $go") } @names });

        $t->{held}++;
        Kvroute::wait_for(sub { ($t->load())[0] == $t->{held} });
    }

    return sub {
        $t->step($go);

        my @r = map { $t->finish($_) } @open;

        $t->{held} -= $n;
        Kvroute::wait_for(sub { ($t->load())[0] == $t->{held} });

        return @r;
    };
}


# how often each thing occurs

sub tally {
    my ($t, @things) = @_;
    my %count;

    $count{$_}++ for @things;

    return \%count;
}


# Chi-square beyond these happens once in 10^10 runs of what is random, by degrees
# of freedom from 1.

my @critical = (41.82, 46.05, 49.54, 52.67, 55.56, 58.29, 60.90);

sub is_spread {
    my ($t, $count, $weights, $name) = @_;

    my ($total, $sum, $chi) = (0, 0, 0);

    $total += $_ for values %$count;
    $sum += $_ for values %$weights;

    for my $k (keys %$weights) {
        my $expected = $total * $weights->{$k} / $sum;
        $chi += (($count->{$k} // 0) - $expected) ** 2 / $expected;
    }

    my $stray = grep { !exists $weights->{$_} } keys %$count;

    ok($chi <= $critical[keys(%$weights) - 2] && !$stray, $name)
        or diag("chi-square $chi: "
                . join ', ', map { "$_ $count->{$_}" } sort keys %$count);
}


1;
