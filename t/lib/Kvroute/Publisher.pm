package Kvroute::Publisher;

# An engine that publishes KV events, and the state that nginx derives from them:
#
#     my $p = Kvroute::Publisher->new($t, UPSTREAM, ARGUMENTS of the engine)
#
# Its ports are $p->{port}, $p->{live} and $p->{replay}.

use strict;
use warnings;

use Kvroute;


sub new {
    my ($class, $t, $upstream, @arguments) = @_;

    my ($live, $replay) = $t->ports(2);

    my ($port) = $t->engines(1, '--hardware', 'none', '--model', 'm',
                             '--enable-prompt-tokens-details', '--block-size', 16,
                             '--kv-events', $live, '--kv-replay', $replay,
                             @arguments);

    return bless({ t => $t, upstream => $upstream, port => $port, live => $live,
                   replay => $replay }, $class);
}


# Returns its row of the status

sub events {
    my ($p) = @_;

    return $p->{t}->peer($p->{upstream}, $p->{port})->{events};
}


# Returns its own counters

sub published { return $_[0]->{t}->control($_[0]->{port})->{kv_events}; }


# nginx is connected slightly before the publisher counts it

sub connected {
    my ($p) = @_;

    return wait_for(sub {
        $p->published()->{subscribers} == 1 && $p->events()->{sources} == 1;
    });
}


# Returns the number of requests that attribution has finished

sub looked_for {
    my $e = $_[0]->events();

    return $e->{attributed} + $e->{ambiguous} + $e->{unmatched};
}


# Waits until nginx has read all events

sub read_all {
    my ($p) = @_;

    return wait_for(sub {
        $p->events()->{messages} == $p->published()->{messages};
    });
}

1;
