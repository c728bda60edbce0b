package Kvroute::Store;

# A Redis or Valkey server for one test, and commands to it.
#
#     my $store = Kvroute::Store->new($t, '--requirepass', 'x') or skip;
#     $store->command('XLEN', 'kvroute:{z}');
#     $store->stop('KILL'); $store->start();

use strict;
use warnings;

use IO::Socket::INET;


# Returns the program that KVROUTE_REDIS names, or an installed one.
#
# Debian's redis-tools contains the server under the name of another tool; the
# package redis-server would start one

sub binary {
    my ($t) = @_;

    return $ENV{KVROUTE_REDIS} if $ENV{KVROUTE_REDIS};

    for my $name (qw(valkey-server redis-server)) {
        for my $dir (split(/:/, $ENV{PATH}), qw(/usr/bin /usr/sbin)) {
            return "$dir/$name" if -x "$dir/$name";
        }
    }

    return unless -x '/usr/bin/redis-check-rdb';

    my $link = "$t->{dir}/redis-server";
    symlink '/usr/bin/redis-check-rdb', $link unless -l $link;

    return $link;
}


sub new {
    my ($class, $t, @args) = @_;

    my $bin = binary($t) or return;

    my $s = bless { t => $t, bin => $bin, port => $t->port(),
                    args => [@args] }, $class;

    $s->start();

    return $s;
}


sub start {
    my ($s, @args) = @_;

    my $t = $s->{t};
    my $log = "$t->{dir}/store-$s->{port}.log";

    $s->{pid} = $t->spawn($log, $s->{bin}, '--port', $s->{port}, '--bind',
                          '127.0.0.1', '--save', '', '--appendonly', 'no',
                          '--dir', $t->{dir}, @{$s->{args}}, @args);

    Kvroute::wait_for(sub {
        return ($s->command('PING') // '') =~ /PONG|NOAUTH|NOPERM/;
    }) or die "the store does not start: " . Kvroute::slurp($log);
}


sub stop {
    my ($s, $signal) = @_;

    my $pid = delete $s->{pid} or return;

    kill $signal || 'TERM', $pid;
    waitpid($pid, 0);
    $s->{t}{children} = [ grep { $_ != $pid } @{$s->{t}{children}} ];
}


# Returns the answer to a command: text unchanged, lists as in the protocol;
# undef if there is none.

sub command {
    my ($s, @words) = @_;

    my $c = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                  PeerPort => $s->{port}, Timeout => 5)
        or return;

    my @commands = ([@words]);
    unshift @commands, $s->{auth} if $s->{auth};

    print $c map {
        '*' . @$_ . "\r\n" . join '', map { '$' . length($_) . "\r\n$_\r\n" } @$_
    } @commands;
    shutdown $c, 1;

    local $/;
    my $answer = <$c> // '';

    $answer =~ s/^\+OK\r\n// if $s->{auth};
    return $1 if $answer =~ /^[+:-](.*)\r\n/;
    return $1 if $answer =~ /^\$\d+\r\n(.*)\r\n$/s;
    return $answer;
}


1;
