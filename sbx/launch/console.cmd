@"%~dp0python.exe" -m sbx %*
