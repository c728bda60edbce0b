package Kvroute::Receipts;

# The decision record of each request, and tests of the distribution of many
# decisions.
#
#     http { %%LOG%% ... }         # in the configuration
#     $t->post('/?n=a', $body);
#     $t->receipt('a')->{reason}   # policy, reason, peer, matched, ...

use strict;
use warnings;

use Test::More;

my @fields = qw(status addr policy reason peer model session prompt matched
                best cost);


# Adds a log of decision records, by the argument "n" of the requests

sub receipts {
    my ($t) = @_;

    $t->{vars}{LOG} = "log_format receipt '\$arg_n|\$status|\$upstream_addr|"
        . join('|', map { "\$kvroute_$_" } qw(policy reason peer model session
                        prompt_bytes matched_bytes best_bytes cost))
        . "';\n    access_log $t->{dir}/access.log receipt;";
}


# Returns the decision record of a request; it is logged after the response

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


# Returns the line of the access log that begins with a word.  nginx can write a
# line long after the client has its answer, after lines of later requests

sub logged {
    my ($t, $id) = @_;
    my $line;

    Kvroute::wait_for(sub { ($line) = $t->access_log() =~ /^\Q$id\E (.*)$/m });

    return $line;
}


# Returns the name, B0, B1, .., of an address

sub name_of {
    my ($t, $address) = @_;

    my ($port) = ($address // '') =~ /:(\d+)$/ or return '-';
    my ($name) = grep { /^[BE]\d+$/ && $t->{vars}{$_} == $port }
                 keys %{$t->{vars}};

    return $name // 'other';
}


# Returns the backend of a response

sub from {
    my ($t, $r) = @_;

    return $r->{headers}{'x-backend'} // "status $r->{status}";
}


# Posts a request and returns the backend

sub to {
    my ($t, $uri, $body, %headers) = @_;

    return $t->from($t->post($uri, $body, headers => \%headers));
}


# The same on idle peers.  A client may have its response before the counters of
# its request are released, and the next choice may see them.

sub alone {
    my ($t, @request) = @_;

    $t->idle() or die "a request was not taken off its peer\n";

    return $t->to(@request);
}


# Starts N requests that stay in flight; the returned function ends them and
# returns their responses.  The body may be a list with one for each.

my $holds = 0;

sub hold {
    my ($t, $n, $uri, $body, %headers) = @_;

    my $go = 'hold' . $holds++;
    my @names = grep { /^B\d+$/ } keys %{$t->{vars}};
    my @open;

    $t->{held} ||= 0;

    # answered requests may still be counted

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


# Counts how often each thing occurs

sub tally {
    my ($t, @things) = @_;
    my %count;

    $count{$_}++ for @things;

    return \%count;
}


# Random choices exceed these values of chi-square once in 10^10 runs; by degrees
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
