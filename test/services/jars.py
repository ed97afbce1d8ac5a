"""Programs in Java that come from Maven: fetched once, then run without the network."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent

# Quick to start, and small; peak speed is for benchmarks to ask for.
JAVA_OPTIONS = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                "-Dorg.slf4j.simpleLogger.showDateTime=true",
                "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS"]


def fail(text):
    sys.exit(f"{Path(sys.argv[0]).name}: {text}")


class Jars:
    """The jars of NAME-pom.xml, in $OUTBOX_NAME or in a cache of the user's."""

    def __init__(self, name):
        self.name = name
        self.pom = HERE / f"{name}-pom.xml"
        version = ElementTree.parse(self.pom).findtext(f".//{{*}}{name}.version")
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        chosen = os.environ.get(f"OUTBOX_{name.upper()}")
        self.home = Path(chosen or Path(cache, "outbox", f"{name}-{version}")).absolute()

    def files(self):
        return sorted((self.home / "lib").glob("*.jar"))

    # To be run in the folder: the class path is relative, so that an archive of classes is good
    # wherever the folder is.
    def java(self, options, *arguments):
        home = os.environ.get("JAVA_HOME")
        program = f"{home}/bin/java" if home else "java"
        if not shutil.which(program):
            fail(f"there is no {program}")
        archive = self.home / "classes.jsa"
        shared = [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
        classpath = ":".join(str(jar.relative_to(self.home)) for jar in self.files())
        return [program, *JAVA_OPTIONS, *shared, *options,
                "-cp", classpath, *map(str, arguments)]

    # Does not return.
    def run_source(self, source, *arguments, options=()):
        self.fetch()
        command = self.java(options, HERE / source, *arguments)
        os.chdir(self.home)
        os.execvp(command[0], command)

    # make_archive, if given, is called with the name of an archive of classes that it may make.
    def fetch(self, make_archive=None):
        if self.files():
            return
        if not shutil.which("mvn"):
            fail(f"{self.name} is not in {self.home}, and there is no mvn to fetch it")
        target = self.home
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as scratch:
            self.home = Path(scratch, self.name)
            self.download()
            if make_archive:
                archive = Path(scratch, "classes.jsa")
                make_archive(archive, Path(scratch, "work"))
                archive.rename(self.home / "classes.jsa")
            subprocess.run(["chmod", "-R", "a+rX", self.home], check=True)
            try:
                self.home.rename(target)
            except OSError:
                if not (target / "lib").exists():  # unless another was faster
                    raise
            self.home = target

    def download(self):
        done = subprocess.run(["mvn", "-q", "-B", "-f", self.pom, "dependency:copy-dependencies",
                               "-DincludeScope=runtime", f"-DoutputDirectory={self.home}/lib"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            fail(f"mvn cannot fetch {self.name}\n{done.stdout}")
