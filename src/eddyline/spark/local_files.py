"""Permissions of local files, set without starting a process.

Without its native library, which PySpark does not ship, Hadoop starts a process ``chmod`` for each
local file and folder that it creates. ``install`` replaces the JVM's local file system by a
subclass. Its ``setPermission`` calls chmod(2), and skips files that have that mode. Files and
checksums are as before.

Spark compiles its generated code with Janino, which compiles the class here, too.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, cast

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "org.eddyline.LocalFiles"

_JAVA = """
package org.eddyline;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class LocalFiles extends LocalFileSystem {
  public LocalFiles() { super(new Raw()); }

  public static class Raw extends RawLocalFileSystem {
    public void setPermission(Path path, FsPermission permission) throws IOException {
      java.nio.file.Path file = pathToFile(path).toPath();
      LinkOption[] followed = new LinkOption[0];
      int mode = ((Integer) Files.getAttribute(file, "unix:mode", followed)).intValue();
      int wanted = permission.toShort();
      // chmod, too, leaves a folder's set-user-ID and set-group-ID.
      if (Files.isDirectory(file, followed)) wanted |= mode & 06000;
      if ((mode & 07777) != wanted) {
        Files.setAttribute(file, "unix:mode", Integer.valueOf(wanted), followed);
      }
    }
  }
}
"""


def install(spark: SparkSession) -> None:
    """Replace the local file system of a JVM that has just been started.

    Hadoop caches one instance per scheme and user; the tasks of local mode share it. On Windows,
    and where the JVM does not take the class, Hadoop's own stays, which only takes longer.
    """
    if sys.platform == "win32":
        return
    context = cast("Any", spark.sparkContext)
    jvm, settings = context._jvm, context._jsc.hadoopConfiguration()
    try:
        files = jvm.org.apache.hadoop.fs.FileSystem
        local = jvm.java.net.URI("file:///")
        before = files.get(local, settings)
        if settings.get("fs.file.impl") is not None or before.getClass().getName() == NAME:
            return  # the user has chosen one, or it is replaced already
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(settings.getClassLoader())
        compiler.cook(_JAVA)
        with_class = jvm.org.apache.hadoop.conf.Configuration(settings)
        with_class.setClassLoader(compiler.getClassLoader())
        with_class.set("fs.file.impl", NAME)
        before.close()  # remove it from Hadoop's cache
        files.get(local, with_class)
    except (Py4JError, TypeError) as error:  # py4j takes a class that is not there for a package
        logging.getLogger(__name__).info("Hadoop keeps its local file system: %s", error)
