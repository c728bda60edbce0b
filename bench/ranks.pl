#!/usr/bin/perl

# make bench-ranks: agents on emulated engines with data-parallel ranks, when
# kvroute_ranks tells the ranks apart, when the engines choose, on as many
# engines that are alone, and by vLLM Router, if make bench-peers has fetched it
# (or VLLM_ROUTER is its path).  Then what fails while ranks forget, an address
# goes, and is back with half of its ranks.  Writes build/bench/ranks.json.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../t/lib";
use JSON::PP;
use Kvroute;
use Time::HiRes qw(time);

my ($SERVERS, $RANKS) = (2, 8);
my ($AGENTS, $TURNS, $AT_ONCE) = (64, 6, 12);

my @args = ('--speed', 20, '--num-gpu-blocks-override', 16384,
            '--enable-prompt-tokens-details');

my %arm = (
    ranks => 'kvroute_ranks: a header names the rank',
    internal => 'the engine chooses a rank by load',
    alone => 'as many engines, one port each',
);

my $build = $ENV{BUILD} || "$FindBin::Bin/../build";
my $router = $ENV{VLLM_ROUTER} || "$build/bench/peers/vllm/bin/vllm-router";

my $t = Kvroute->new();
my %ports;

$ports{internal} = [ $t->engines($SERVERS, @args, '--data-parallel', $RANKS) ];
$ports{ranks} = [ $t->ports($SERVERS) ];
$ports{alone} = [ $t->engines($SERVERS * $RANKS, @args) ];

# each a process of its own: one of them will be killed

$t->start_engine($_, 1, @args, '--data-parallel', $RANKS) for @{$ports{ranks}};

my $conf = '';

for my $name (sort keys %arm) {
    my $ranks = $name eq 'ranks' ? 'kvroute_ranks auto;' : '';
    my $servers = join ' ', map { "server 127.0.0.1:$_ max_fails=0;" }
                  @{$ports{$name}};

    $conf .= <<"CONF";
    kvroute_zone zone=z_$name:32m;
    upstream $name {
        zone $name 64k;
        kvroute kv_cache zone=z_$name;
        $ranks
        kvroute_probe;
        $servers
        keepalive 32;
    }
CONF
}

my $locations = join '', map { "location /$_/ { proxy_pass http://$_/; }\n" }
                sort keys %arm;

$t->conf(<<"CONF");
http {
%%TEMP%%
$conf
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header X-Data-Parallel-Rank \$kvroute_rank;
    client_body_buffer_size 1m;
    server {
        listen 127.0.0.1:%%PORT%%;
        $locations
        location /kvroute { kvroute_status; }
    }
}
CONF

$t->run();

wait_for(sub {
    @{$t->status()->{upstreams}{ranks}{peers}} == $SERVERS * $RANKS
}) or die "the ranks are not known\n";


# the others' own way, with a port of its own; its policy is their default

my %at;
my @others;

if (-x $router) {
    $ports{vllm_router} = [ $t->engines($SERVERS, @args, '--data-parallel',
                                        $RANKS) ];
    $arm{vllm_router} = 'vLLM Router, cache_aware, a rank by the same header';
    $at{vllm_router} = $t->port();

    my $pid = fork() // die "fork: $!";

    if ($pid == 0) {
        open STDOUT, '>', "$t->{dir}/vllm_router.log";
        open STDERR, '>&', \*STDOUT;

        no warnings 'exec';

        exec $router, '--host', '127.0.0.1', '--port', $at{vllm_router},
             '--prometheus-port', $t->port(), '--policy', 'cache_aware',
             '--intra-node-data-parallel-size', $RANKS,
             '--worker-urls', map { "http://127.0.0.1:$_" } @{$ports{vllm_router}};
        POSIX::_exit(1);
    }

    push @others, $pid;

    # it asks its engines first

    if (!wait_for(sub { ($t->get('/health', port => $at{vllm_router})->{status}
                         // 0) == 200 }, 60))
    {
        print "vLLM Router does not begin\n",
              Kvroute::slurp("$t->{dir}/vllm_router.log");
        delete $at{vllm_router};
    }
}

END { kill 'TERM', @others if @others }


# one agent: each turn has all that was before

sub agent {
    my ($where, $agent) = @_;
    my $uri = $at{$where} ? '' : "/$where";
    my @m = ({ role => 'system', content => text(12000, $agent % 4) });
    my (@ms, $failed);

    for my $turn (1 .. $TURNS) {
        push @m, { role => 'user', content => text(3000, 100 * $agent + $turn) };

        my $start = time();
        my $r = $t->post("$uri/v1/chat/completions", encode_json(
            { model => 'emulated', max_tokens => 64, messages => \@m }),
            port => $at{$where});

        push @ms, 1000 * (time() - $start);

        if ($r->{status} != 200) {
            $failed++;
            next;
        }

        push @m, decode_json($r->{body})->{choices}[0]{message};
        delete $m[-1]{tool_calls};
    }

    return { ms => \@ms, failed => $failed || 0 };
}

# so many at once, of which each does what $each->(its number) returns a list
# of; $meanwhile is done beside them

sub at_once {
    my ($each, $meanwhile) = @_;
    my @pipes;

    for my $p (0 .. $AT_ONCE - 1) {
        pipe my $in, my $out;
        my $pid = fork() // die "fork: $!";

        if ($pid == 0) {
            close $in;
            print $out encode_json([ $each->($p) ]);
            close $out;
            POSIX::_exit(0);
        }

        close $out;
        push @pipes, $in;
    }

    $meanwhile->() if $meanwhile;

    my @all = map { my $in = $_; local $/; @{decode_json(<$in>)} } @pipes;
    1 while waitpid(-1, POSIX::WNOHANG()) > 0;

    return @all;
}

sub play {
    my ($where) = @_;
    my @all = at_once(sub {
        my ($p) = @_;

        return map { agent($where, $_) } grep { $_ % $AT_ONCE == $p } 0 .. $AGENTS - 1;
    });

    my @ms = sort { $a <=> $b } map { @{$_->{ms}} } @all;
    my ($cached, $prompt, $sum, $failed) = (0, 0, 0, 0);

    $sum += $_ for @ms;
    $failed += $_->{failed} for @all;

    for my $port (@{$ports{$where}}) {
        my $c = $t->control($port);
        $c = $c->{replicas}[0] if $c->{replicas};
        $cached += $c->{cached_tokens};
        $prompt += $c->{prompt_tokens};
    }

    return { what => $arm{$where}, requests => scalar @ms, failed => $failed,
             cached_percent => 0 + sprintf('%.2f', 100 * $cached / $prompt),
             mean_ms => 0 + sprintf('%.1f', $sum / @ms),
             p95_ms => 0 + sprintf('%.1f', $ms[0.95 * $#ms]) };
}

my %result = (servers => $SERVERS, ranks_each => $RANKS, agents => $AGENTS,
              turns => $TURNS, at_once => $AT_ONCE);

printf "%-11s %9s %7s %8s %8s %8s\n", qw(arm requests failed cached mean p95);

for my $name (qw(ranks alone internal), keys %at) {
    my $r = $result{$name} = play($name);

    printf "%-11s %9d %7d %7.1f%% %6.1fms %6.1fms\n", $name,
        @$r{qw(requests failed cached_percent mean_ms p95_ms)};
}

# ranks forget one after the other; their address goes, and comes back with half as
# many; agents go on meanwhile

sub rows {
    my ($port) = @_;

    return grep { $_->{name} =~ /:$port(?:#|$)/ }
           @{$t->status()->{upstreams}{ranks}{peers}};
}

sub faults {
    my $port = $ports{ranks}[0];
    my $carried = 0;

    my @all = at_once(sub {
        my ($p) = @_;
        my (@done, $n);

        push @done, agent('ranks', 1000 + $p + $AT_ONCE * $n++) until -e "$t->{dir}/enough";
        return @done;

    }, sub {
        my $served = sub {
            my $before = 0;

            $before += $_->{requests} for rows($port);

            return wait_for(sub {
                my $now = 0;
                $now += $_->{requests} for rows($port);
                return $now > $before + $AT_ONCE;
            });
        };

        for my $rank (0 .. $RANKS - 1) {
            $t->control($port, { reset_rank => $rank });
            $served->();
        }

        # what it carries is sure when it has stopped, and all wait for it or are done

        my ($pid, $last) = ($t->{engine_pid}{$port}, -1);

        kill 'STOP', $pid;

        wait_for(sub {
            select undef, undef, undef, 0.5;
            $carried = 0;
            $carried += $_->{active} for rows($port);

            return $carried == $last || ($last = $carried, 0)[1];
        });

        $t->kill_engine($port);
        wait_for(sub { rows($port) == 1 });

        $t->start_engine($port, 1, @args, '--data-parallel', $RANKS / 2);
        wait_for(sub { rows($port) == $RANKS / 2 });
        wait_for(sub { grep { $_->{requests} } rows($port) });
        $served->();
        $t->step('enough');
    });

    my ($requests, $failed) = (0, 0);

    for (@all) {
        $requests += @{$_->{ms}};
        $failed += $_->{failed};
    }

    return { requests => $requests, carried => $carried, failed => $failed };
}

my $f = $result{faults} = faults();

printf "%d ranks forget, %d to %d ranks by a restart: %d requests, %d in its connections, %d failed\n",
    $RANKS, $RANKS, $RANKS / 2, @$f{qw(requests carried failed)};

mkdir "$build/bench";
Kvroute::write_file("$build/bench/ranks.json",
                    JSON::PP->new->canonical->pretty->encode(\%result));
