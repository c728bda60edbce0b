#!/usr/bin/perl

# The documentation: links lead somewhere, every directive, variable, metric
# and reason of the source is described, and what is described exists.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use FindBin;
use Test::More;

my $root = abs_path("$FindBin::Bin/..");

sub slurp {
    open my $fh, '<', $_[0] or return '';
    local $/;
    return scalar(<$fh>) // '';
}

my @files = map { "$root/$_" }
    grep { /\.md$/ && -e "$root/$_" }
    (`cd $root && git ls-files 2>/dev/null` =~ /(.+)\n/g);

@files = map { abs_path($_) } glob "$root/*.md $root/docs/*.md $root/examples/*/*.md"
    unless @files;

plan(skip_all => 'no documentation here') unless @files;

# a heading's name in links, as on the web

sub anchors {
    my ($text) = @_;

    $text =~ s/^```.*?^```//msg;

    return map { my $h = lc; $h =~ s/[`*]//g; $h =~ s/[^\w\- ]//g;
                 $h =~ tr/ /-/; $h => 1 } $text =~ /^#+ +(.+?) *$/mg;
}

for my $file (@files) {
    my $text = slurp($file);
    my $name = $file =~ s{^\Q$root\E/}{}r;
    my @bad;

    $text =~ s/^```.*?^```//msg;
    $text =~ s/`[^`\n]*`/``/g;

    for my $link ($text =~ /\]\(([^)\s]+)\)/g) {
        next if $link =~ /^(?:https?|mailto):/;

        my ($path, $anchor) = split /#/, $link, 2;
        my $to = length $path ? dirname($file) . "/$path" : $file;

        if (!-e $to) {
            push @bad, $link;

        } elsif (defined $anchor && $to =~ /\.md$/) {
            my %known = anchors(slurp($to));
            push @bad, $link unless $known{$anchor};
        }
    }

    is(join(' ', @bad), '', "$name: links");
    unlike($text, qr/[ \t]+\n/, "$name: no spaces at the ends of lines");
}

# --- the source and the documentation say the same

my $src = join '', map { slurp($_) }
          glob "$root/ngx_http_kvroute_module/*.c $root/ngx_http_kvroute_module/core/*.c";
my $directives = slurp("$root/docs/directives.md");
my $variables = slurp("$root/docs/variables.md");

my %variable = map { $_ => 1 } slurp("$root/ngx_http_kvroute_module/"
                                     . 'ngx_http_kvroute_variables.c')
               =~ /ngx_string\("(kvroute_\w+)"\), NULL/g;
my %directive = map { $_ => 1 } map { slurp($_) =~ /ngx_string\("(kvroute\w*)"\),\s+NGX_/g }
                glob "$root/ngx_http_kvroute_module/*.c";

ok(keys %variable > 5 && keys %directive > 5, 'both are found');

for (sort keys %directive) {
    like($directives, qr/^## \Q$_\E$/m, "$_ is described");
    like($directives, qr/^    Syntax:  \Q$_\E\b/m, "$_ has a syntax");
}

ok($directive{$_}, "$_ exists") for $directives =~ /^## (kvroute\w*)$/mg;

like($variables, qr/^\| `\$\Q$_\E`/m, "\$$_ is described") for sort keys %variable;
ok($variable{$_}, "\$$_ exists") for $variables =~ /^\| `\$(kvroute_\w+)`/mg;

# metrics in examples and documentation

my %metric = map { $_ => 1 } $src =~ /"(kvroute_\w+)[{"]/g;
$metric{"kvroute_peer_$_"} = 1
    for slurp("$root/ngx_http_kvroute_module/ngx_http_kvroute_status_prom.c")
        =~ /^    \{ "(\w+)", "(?:gauge|counter)"/mg;

my $operations = slurp("$root/docs/operations.md");

for (grep { /_(?:total|ratio|seconds|bytes|requests)$/ }
      $operations =~ /\b(kvroute_\w+)/g)
{
    ok($metric{$_}, "metric $_ exists");
}

# words that are commonly misspelled, where aspell is

SKIP: {
    my ($aspell) = grep { -x } map { "$_/aspell" } split /:/, $ENV{PATH};

    skip 'aspell is not installed', 1 unless $aspell;
    skip 'no English dictionary', 1 unless `$aspell dicts` =~ /^en$/m;

    my %odd;

    for my $file (grep { m{/docs/|README} } @files) {
        my $text = slurp($file);

        $text =~ s/^```.*?^```//msg;
        $text =~ s/^    .*$//mg;
        $text =~ s/`[^`\n]*`//g;
        $text =~ s/\]\([^)]*\)//g;

        open my $fh, '>', "$root/build/spell.txt" or skip 'no build folder', 1;
        print $fh $text;
        close $fh;

        $odd{$_} = $file for split /\n/, `$aspell list --lang=en --ignore=3 --ignore-case < $root/build/spell.txt`;
    }

    my %known = map { lc($_) => 1 } split /\s+/, slurp("$root/t/docs.words");
    my @odd = grep { !$known{lc $_} } sort keys %odd;

    is(join(' ', @odd), '', 'spelling (t/docs.words has names of things)');
}

done_testing();
