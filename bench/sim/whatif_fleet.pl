#!/usr/bin/perl

# What another fleet would bring, predicted by nginx from the traffic of three
# emulated engines, and then asked of a changed fleet.  Prints a line for each change.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../../t/lib";
use Kvroute;

use constant { BLOCKS => 2048, AT_ONCE => 4, PROMPTS => 900 };

srand 7;

my %fleet = (now => [3, BLOCKS, 0], half => [3, BLOCKS / 2, 0], twice => [3, BLOCKS * 2, 0],
             four_times => [3, BLOCKS * 4, 0], one_less => [2, BLOCKS, 0],
             one_more => [4, BLOCKS, 0], host_4 => [3, BLOCKS, BLOCKS * 4]);

my $t = Kvroute->new();
my ($upstreams, $locations, $first, %peer) = ('', '', 0);

for my $name (sort keys %fleet) {
    my ($n, $blocks, $host) = @{$fleet{$name}};

    ($peer{$name}) = $t->engines($n, '--hardware', 'none', '--model', 'm', '--kv-cache-size',
                                 $blocks, '--enable-prompt-tokens-details',
                                 $host ? ('--kv-host-size', $host) : ());

    $upstreams .= "upstream $name { zone $name 64k; kvroute kv_cache zone=z;\n"
        . "kvroute_probe interval=500ms; "
        . join('', map { "server 127.0.0.1:%%E$_%%; " } $first .. $first + $n - 1) . "}\n";
    $locations .= "location /$name/ { proxy_pass http://$name/; }\n";
    $first += $n;
}

$t->conf("kvroute_zone zone=z:32m;\n$upstreams$locations"
         . "location = /kvroute/json { kvroute_status json; access_log off; }\n");
$t->run();

for my $name (keys %peer) {
    wait_for(sub { $t->peer($name, $peer{$name})->{engine}{capacity_tokens} });
}

my $any = popular(PROMPTS);

sub ask {
    my ($name, $n) = @_;
    my ($cached, $all) = (0, 0);

    for (1 .. $n / AT_ONCE) {
        my @request = map { $t->start("POST /$name/v1/chat/completions", $any->()) } 1 .. AT_ONCE;

        for my $request (@request) {
            my $body = $t->finish($request)->{body};
            $all += $1 if $body =~ /"prompt_tokens":(\d+)/;
            $cached += $1 if $body =~ /"cached_tokens":(\d+)/;
        }
    }

    return $cached / $all;
}

ask('now', 800);
my $now = ask('now', 4000);
my $told = $t->status()->{upstreams}{now}{whatif};

printf "  %-12s %6s %6s %6s %6s   %s\n", '', 'cached', 'then', 'told', 'error', 'low to high';

for my $name (qw(half twice four_times one_less one_more host_4)) {
    ask($name, 800);
    my $then = ask($name, 1600);
    my $e = $told->{$name};

    printf "  %-12s %6.3f %6.3f %6.3f %+6.3f   %.3f to %.3f\n", $name, $now, $then, $e->{cached},
        $e->{cached} - $then, $e->{cached_low}, $e->{cached_high};
}

$t->stop();
