"""Permissions of local files, set without starting a process.

Hadoop asks the program ``chmod`` to set the permission of each local file and folder that it makes,
where its native library is missing, and PySpark has none. A batch of a stream makes 20 to 40 files
and folders, and a process takes 3 to 7 ms, more on busy cores. ``install`` replaces the file system
of the JVM by one that differs in one method: it sets the permission by a call to the system, and
only if it is another one. Files and checksums are as before.

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
    """Replace the local file system of the session's JVM, once for each JVM.

    Hadoop keeps one file system of a kind for all who ask. In local mode tasks run in the same JVM,
    so they get it too. On Windows, and where the JVM does not take the class, Spark keeps its own,
    which only takes longer.
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
        before.close()  # no longer kept for who asks next
        files.get(local, with_class)
    except Py4JError as error:
        logging.getLogger(__name__).info("Spark keeps its local file system: %s", error)
