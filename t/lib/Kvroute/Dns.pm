package Kvroute::Dns;

# A DNS server for names that are resolved at run time.  Its answers are in files
# that a test replaces.

use strict;
use warnings;

use IO::Socket::INET;
use Kvroute;


# Sets the addresses of NAME.test, or with '' those of all other names

sub records {
    my ($t, $name, @addrs) = @_;
    my $file = "$t->{dir}/records$name";

    Kvroute::write_file("$file.new", join ' ', @addrs);
    rename "$file.new", $file or die "$file: $!";
}


# Returns the port of a server that ends with the test

sub serve {
    my ($t) = @_;

    my $s = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Proto => 'udp')
        or die "udp: $!";
    my $pid = fork() // die "fork: $!";

    if ($pid == 0) {
        setpgrp(0, 0);
        open STDOUT, '>', '/dev/null';
        $SIG{$_} = 'DEFAULT' for qw(INT TERM HUP);

        while (1) {
            my $peer = $s->recv(my $q, 1500) or next;

            $s->send(answer($t, $q), 0, $peer);
        }
    }

    push @{$t->{groups}}, $pid;

    return $s->sockport();
}


# no records: unknown name; TTL 0: the client asks each time

sub answer {
    my ($t, $q) = @_;
    my ($id) = unpack 'n', $q;
    my ($end) = index($q, "\0", 12) + 5;
    my $question = substr $q, 12, $end - 12;
    my ($type) = unpack 'n', substr $q, $end - 4, 2;
    my $name = unpack 'C/a', $question;

    my ($file) = grep { -e } "$t->{dir}/records$name", "$t->{dir}/records";
    my @addrs = $type == 1 ? split(' ', Kvroute::slurp($file)) : ();

    return pack('n6', $id, @addrs ? 0x8180 : 0x8183, 1, scalar @addrs, 0, 0)
           . $question
           . join('', map { pack 'n3Nna4', 0xc00c, 1, 1, 0, 4,
                            pack('C4', split /\./) } @addrs);
}


1;
