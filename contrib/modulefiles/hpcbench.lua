-- Module file of Lmod for an installed hpcbench. docs/contrib.md says how to fill in PREFIX and PYTHON.

help([[Benchmark suite for scientific deep learning. Start with: hpcbench doctor]])
whatis("Name: hpcbench")
whatis("Version: " .. myModuleVersion())
whatis("Description: scientific deep learning on supercomputers: staging, training, studies, reports")

-- The environment or the folder that hpcbench was installed into.
local prefix = "@PREFIX@"
-- The version of Python where that is no virtual environment, as of `install.sh --prefix`: 3.12.
local python = "@PYTHON@"

if prefix:find("@", 1, true) == 1 then
    LmodError("hpcbench: fill in PREFIX in " .. myFileName())
end

-- The site's module with PyTorch, where hpcbench was installed on top of it.
-- depends_on("pytorch")

prepend_path("PATH", pathJoin(prefix, "bin"))
if not isFile(pathJoin(prefix, "pyvenv.cfg")) then
    if python:find("@", 1, true) == 1 then
        LmodError("hpcbench: fill in PYTHON in " .. myFileName() .. ", since " .. prefix .. " is no virtual environment")
    end
    prepend_path("PYTHONPATH", pathJoin(prefix, "lib", "python" .. python, "site-packages"))
end
